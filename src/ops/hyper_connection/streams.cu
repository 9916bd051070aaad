// Hyper-connections in one pass: every stream is read once and written once, y read once, x written once.
//
// A CTA owns 160 columns of d (of all four copies) and works through tiles of 16 rows, so that its part of fn stays in
// shared memory. d / 160 CTAs share a row and exchange its 26 sums (exchange.cuh): every one of them needs the sum of
// squares of x before it can normalise its columns, and one of them makes the mixing coefficients. A tile is finished two
// tiles later, when its sums have long arrived: CTAs that wait for each other at once move at the pace of the slowest. A CTA
// has two teams that take tiles in turn, each of five warps that compute (32 columns each) and one that receives sums. The
// copy engine brings h and y as boxes, and takes h' from where h lay; one of the five warps tells it to, since whatever the
// receiving warp waits for holds up the team.
//
// The 24 mixing products of a row run on the tensor cores with fn split into two bf16 parts, 16 bits and a sign each: the
// part that is left out is below 2^-17 of a value, half of what the fp32 sum over 4 d products loses.
// Columns, not rows, decide how sums are cut: a row has the same bits in every batch.
//
// Linears read x as Q4, 128 columns a scale, which a slice shares with its neighbours. A word for each end of a slice says
// the largest magnitude there of w x, an exact product: what the scale of the norm and rounding make of it is the largest
// of the finished row too, so that it can be sent before that scale is known.
#include "ops/hyper_connection/streams.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "ops/cuda/boxes.cuh"
#include "ops/cuda/errors.h"
#include "ops/cuda/exchange.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear_input.h"
#include "ops/cuda/row.cuh"
#include "ops/hyper_connection/streams.cuh"

namespace hadal::cuda {
namespace {

using namespace streams;

template <bool Write, bool Collapse, bool Mix, bool Round>
struct Streams {
  static constexpr bool kExchange = Collapse || Mix;

  // ---- rows to and from shared memory ------------------------------------------------------------------------------
  struct Carrier {
    const Pass& p;
    Team& team;
    const Tiles& tiles;
    int first;
    uint64_t policy;

    __device__ __forceinline__ Carrier(const Pass& pass, Team& own, const Tiles& list)
        : p(pass), team(own), tiles(list), first(blockIdx.x * kColumns), policy(evict_first_policy()) {}
    __device__ __forceinline__ void fetch(int i) const {
      if (i >= tiles.count) return;
      uint64_t* full = &team.full[i % kStages];
      const int lane = threadIdx.x % 32;
      auto* to = team.in[i % kStages];
      if (p.source == nullptr && p.y_source == nullptr) {
        if (lane != 0) return;
        mbarrier_arrive_expect(full, (kCopies + Write) * sizeof(team.in[0][0]));
        slice_copy(to, &p.h_boxes, first, tiles.row(i), full, policy);
        if constexpr (Write) slice_copy(to[kCopies], &p.y_boxes, first, tiles.row(i), full);
        return;
      }
      const uint32_t bytes = 2 * min(kColumns, p.d - first);
      if (lane == 0) mbarrier_arrive_expect(full, (kCopies + Write) * kRows * bytes);
      __syncwarp();
      if (lane >= kRows) return;
      // Past the end the last row once more: what comes of it is not stored.
      const int row = min(tiles.row(i) + lane, p.rows - 1);
      const int64_t s = p.source != nullptr ? p.source[row] : row;
      for (int copy = 0; copy < kCopies; ++copy)
        bulk_copy(to[copy][lane], p.h + (s * kCopies + copy) * p.d + first, bytes, full, policy);
      if constexpr (Write)
        bulk_copy(to[kCopies][lane], p.y + (p.y_source != nullptr ? p.y_source[row] : int64_t{row}) * p.d + first,
                  bytes, full);
    }
    // h' of tile i leaves; afterwards the tile after the next may come.
    __device__ __forceinline__ void store(int i) const {
      if (p.h_out == nullptr || threadIdx.x % 32 != 0) return;
      slice_store(&p.h_out_boxes, first, tiles.row(i), team.in[i % kStages], policy);
      bulk_store_commit();
    }
    __device__ __forceinline__ void fetch_after_store(int i) const {
      if (threadIdx.x % 32 == 0) bulk_store_wait_read();
      __syncwarp();
      fetch(i + kStages);
    }
  };

  // ---- the warps that compute -----------------------------------------------------------------------------------
  struct Compute {
    const Pass& p;
    Shared& shared;
    Team& team;
    const Tiles& tiles;
    int warp, column;
    bool active;
    uint4 norm{};

    __device__ __forceinline__ Compute(const Pass& pass, Shared& all, Team& own, const Tiles& list, int number)
        : p(pass), shared(all), team(own), tiles(list), warp(number) {
      const int first = blockIdx.x * kColumns + 32 * warp;
      column = first + 8 * (threadIdx.x % 4);
      active = first < p.d;
    }
    // Eight rows of a tile: h' and x of this lane's columns, its part of their sums of squares, and the largest magnitude of
    // x times the norm's weights, which are exact products: what comes of it is what the scaled row has.
    __device__ __forceinline__ void rows(int i, int half, uint32_t (&h_new)[kCopies][4], uint4& x_new, float& hh,
                                         float& xx, float& largest) {
      const int lane = threadIdx.x % 32, local = lane / 4 + 8 * half, row = tiles.row(i) + local;
      const bool valid = row < p.rows;
      const float* coefficients = team.coefficients[i % 2][local];
      // This lane's columns of copy 0; those of a copy are kRows * kColumns behind those of the one before.
      uint16_t* const in = &team.in[i % kStages][0][local][32 * warp + 8 * (lane % 4)];
      const auto part = [&](int copy) { return reinterpret_cast<uint4*>(in + copy * (kRows * kColumns)); };
      if constexpr (Write) {
        float y[8], h[kCopies][8], comb[kCopies * kCopies], post[kCopies];
        unpack8(*part(kCopies), y);
#pragma unroll
        for (int j = 0; j < kCopies; ++j) unpack8(*part(j), h[j]);
#pragma unroll
        for (int j = 0; j < kCopies + 1; ++j) {
          const float4 c = *reinterpret_cast<const float4*>(coefficients + kCopies * (1 + j));
          float* to = j == 0 ? post : comb + kCopies * (j - 1);
          to[0] = c.x, to[1] = c.y, to[2] = c.z, to[3] = c.w;
        }
#pragma unroll
        for (int k = 0; k < kCopies; ++k)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float v[2];
#pragma unroll
            for (int f = 0; f < 2; ++f) {
              v[f] = post[k] * y[2 * e + f];
#pragma unroll
              for (int j = 0; j < kCopies; ++j) v[f] = fmaf(comb[j * kCopies + k], h[j][2 * e + f], v[f]);
            }
            h_new[k][e] = pack_bf16x2(v[0], v[1]);
          }
#pragma unroll
        for (int k = 0; k < kCopies; ++k) *part(k) = make_uint4(h_new[k][0], h_new[k][1], h_new[k][2], h_new[k][3]);
      } else {
#pragma unroll
        for (int j = 0; j < kCopies; ++j) {
          const uint4 v = *part(j);
          h_new[j][0] = v.x, h_new[j][1] = v.y, h_new[j][2] = v.z, h_new[j][3] = v.w;
        }
      }
      float x[8] = {};
      float4 pre{};
      if constexpr (Collapse) pre = *reinterpret_cast<const float4*>(coefficients);
      const float weight[kCopies] = {pre.x, pre.y, pre.z, pre.w};
#pragma unroll
      for (int j = 0; j < kCopies; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float low = __uint_as_float(h_new[j][e] << 16);
          const float high = __uint_as_float(h_new[j][e] & 0xffff0000u);
          if constexpr (Mix) hh = fmaf(high, high, fmaf(low, low, hh));
          if constexpr (Collapse) {
            x[2 * e] = fmaf(weight[j], low, x[2 * e]);
            x[2 * e + 1] = fmaf(weight[j], high, x[2 * e + 1]);
          }
        }
      if constexpr (Collapse) {
        uint32_t packed[4];
        float w[8];
        if constexpr (Round) unpack8(norm, w);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          packed[e] = pack_bf16x2(x[2 * e], x[2 * e + 1]);
          const float low = __uint_as_float(packed[e] << 16), high = __uint_as_float(packed[e] & 0xffff0000u);
          xx = fmaf(high, high, fmaf(low, low, xx));
          if constexpr (Round) largest = fmaxf(largest, fmaxf(fabsf(w[2 * e] * low), fabsf(w[2 * e + 1] * high)));
        }
        x_new = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        if (p.collapsed != nullptr && valid)
          *reinterpret_cast<uint4*>(p.collapsed + (int64_t{row} * p.d + column)) = x_new;
      }
    }

    // The mixing products of Halves times eight rows.
    template <int Halves>
    __device__ __forceinline__ void products(const uint32_t (&h_new)[2][kCopies][4], float (&dots)[2][kTiles][4]) {
#pragma unroll
      for (int copy = 0; copy < kCopies; ++copy)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            const uint4 a = shared.fn[warp][copy][m][tile][threadIdx.x % 32];
#pragma unroll
            for (int half = 0; half < Halves; ++half)
              mma_bf16(dots[half][tile], a.x, a.y, a.z, a.w, h_new[half][copy][2 * m], h_new[half][copy][2 * m + 1]);
          }
    }

    __device__ __forceinline__ void leave_sums(int i, const float (&dots)[2][kTiles][4], float (&hh)[2], float (&xx)[2],
                                               float (&largest)[2]) {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int offset = 1; offset < 4; offset *= 2) {
          hh[half] += __shfl_xor_sync(kFullWarp, hh[half], offset);
          xx[half] += __shfl_xor_sync(kFullWarp, xx[half], offset);
          if constexpr (Round) largest[half] = fmaxf(largest[half], __shfl_xor_sync(kFullWarp, largest[half], offset));
        }
        float(*to)[kSums] = team.sums[i % 2][warp] + 8 * half;
        if constexpr (Mix)
#pragma unroll
          for (int e = 0; e < 2; ++e) {  // high and low parts of mixes g, g + 8, g + 16
            const auto& d = dots[half];
            to[2 * t + e][g] = d[0][e] + d[1][2 + e];
            to[2 * t + e][g + 8] = d[0][2 + e] + d[2][e];
            to[2 * t + e][g + 16] = d[1][e] + d[2][2 + e];
          }
        if (t == 0) *reinterpret_cast<float2*>(to[g] + kMixes) = make_float2(hh[half], xx[half]);
        if (Round && t == 0) team.largest[i % 2][warp][g + 8 * half] = largest[half];
      }
    }

    // The norm of x, when its scale is there.
    __device__ __forceinline__ void finish(int i, const uint4 (&x)[2]) {
      if (!Collapse || p.norm == nullptr || !active) return;
      float w[8];
      unpack8(norm, w);
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int local = lane / 4 + 8 * half, row = tiles.row(i) + local;
        if (row >= p.rows) continue;
        const float scale = team.x_scale[i % 2][local];
        float v[8];
        unpack8(x[half], v);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = w[e] * v[e] * scale;
        const uint4 packed = make_uint4(pack_bf16x2(v[0], v[1]), pack_bf16x2(v[2], v[3]), pack_bf16x2(v[4], v[5]),
                                        pack_bf16x2(v[6], v[7]));
        if (!Round || p.x != nullptr) *reinterpret_cast<uint4*>(p.x + (int64_t{row} * p.d + column)) = packed;
        if constexpr (Round) {
          const Ends ends{static_cast<int>(blockIdx.x)};
          const int end = ends.of(warp);
          const float inverse = team.q4_inverse[i % 2][end][local];
          unpack8(packed, v);
#pragma unroll
          for (int e = 0; e < 8; ++e) v[e] *= inverse;
          *reinterpret_cast<uint2*>(fp8_chunk(p.rounded, ends.group(end), row, column % kGroup / 16) + column % 16) =
              make_uint2(e4m3_pair(v[0], v[1]) | e4m3_pair(v[2], v[3]) << 16,
                         e4m3_pair(v[4], v[5]) | e4m3_pair(v[6], v[7]) << 16);
        }
      }
    }

    __device__ __forceinline__ void run(const Carrier& carrier, int barrier, uint64_t* squares, uint64_t* products_to) {
      const uint32_t tag = team.tag;
      const int lane = threadIdx.x % 32;
      if (Collapse && active && p.norm != nullptr) norm = __ldg(reinterpret_cast<const uint4*>(p.norm + column));
      // Lane v sends sum v of rows warp, warp + kWarps, ...
      const bool sends = lane < kSums && (Mix || lane == kSent);
      const int width = lane == kSent ? 1 : kSent, first_word = (static_cast<int>(blockIdx.x) * kRows + warp) * width;
      uint64_t* const send_to = lane == kSent ? squares + first_word : products_to + (first_word + lane);
      const int slot_words = static_cast<int>(gridDim.x) * kRows * width;
      uint4 x[kLag][2] = {};  // of the tiles before, the latest first
      for (int i = 0; i < (kExchange ? tiles.count + kLag : tiles.count); ++i) {
        uint4 x_new[2] = {};
        if (i < tiles.count) {
          float dots[2][kTiles][4] = {}, hh[2] = {}, xx[2] = {}, largest[2] = {};
          mbarrier_wait(&team.full[i % kStages], i / kStages & 1);
          if (active) {
            uint32_t h_new[2][kCopies][4];  // as packed pairs: the tensor core's operand B
            const bool upper = tiles.row(i) + 8 < p.rows;
            rows(i, 0, h_new[0], x_new[0], hh[0], xx[0], largest[0]);
            if (upper) rows(i, 1, h_new[1], x_new[1], hh[1], xx[1], largest[1]);
            if constexpr (Write) fence_async_shared();  // the copy engine takes h' from here
            if constexpr (Mix) upper ? products<2>(h_new, dots) : products<1>(h_new, dots);
          }
          if constexpr (kExchange) leave_sums(i, dots, hh, xx, largest);
        }
        named_barrier(barrier, kTeamThreads);
        if (warp == kCarries && i < tiles.count) carrier.store(i);
        if constexpr (kExchange) {
          if (i < tiles.count && sends) {
            // The sums of five warps, in order; all rows of the tile, so that no word keeps an older tag than its neighbours.
            const uint32_t now = tag + 1 + i;
            uint64_t* to = send_to + static_cast<int>(now % kRing) * slot_words;
            const float* from = &team.sums[i % 2][0][warp][lane];
#pragma unroll
            for (int r = 0; r < (kRows + kWarps - 1) / kWarps; ++r) {
              if (warp + r * kWarps >= kRows) continue;
              float sum = 0;
#pragma unroll
              for (int w = 0; w < kWarps; ++w) sum += from[(w * kRows + r * kWarps) * kSums];
              send(to + r * kWarps * width, sum, now);
            }
          }
          if (i >= kLag) finish(i - kLag, x[kLag - 1]);
#pragma unroll
          for (int n = kLag - 1; n > 0; --n) x[n][0] = x[n - 1][0], x[n][1] = x[n - 1][1];
          x[0][0] = x_new[0];
          x[0][1] = x_new[1];
        }
        if (warp == kCarries && i < tiles.count) carrier.fetch_after_store(i);
      }
    }
  };

  // ---- the warp that receives -----------------------------------------------------------------------------------
  // A lane copies three units of 16 bytes of a tile's coefficients.
  struct Coefficients {
    static constexpr int kEach = kRows * kCoefficients / 4 / 32;
    const float* from[kEach];
    int local[kEach], step[kEach];  // floats from row to row
    uint32_t to[kEach];

    __device__ __forceinline__ Coefficients(const Pass& p, const Team& team) {
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        const int at = threadIdx.x % 32 + 32 * n, unit = at % (kCoefficients / 4);
        local[n] = at / (kCoefficients / 4);
        step[n] = unit < 2 ? kCopies : kCopies * kCopies;
        from[n] = unit == 0   ? (Collapse ? p.pre : nullptr)
                  : unit == 1 ? (Write ? p.post : nullptr)
                              : (Write ? p.comb + (unit - 2) * kCopies : nullptr);
        to[n] = smem_address(&team.coefficients[0][local[n]][4 * unit]);
      }
    }
    __device__ __forceinline__ void load(const Pass& p, const Tiles& tiles, int i) const {
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        int s = min(tiles.row(i) + local[n], p.rows - 1);
        if (p.source != nullptr) s = p.source[s];
        if (from[n] != nullptr)
          copy16_async(to[n] + i % 2 * sizeof(Team::coefficients) / 2, from[n] + int64_t{s} * step[n]);
      }
      copy_async_commit();
    }
  };

  static __device__ __forceinline__ void receive_sums(const Pass& p, const Shared& shared, Team& team, int barrier,
                                                      const Tiles& tiles, const Coefficients& coefficients,
                                                      uint32_t tag, const uint64_t* squares, const uint64_t* products,
                                                      uint64_t* largest) {
    const int lane = threadIdx.x % 32, slices = gridDim.x;
    // Magnitudes: lane (end, local).
    const Ends ends{static_cast<int>(blockIdx.x)};
    const int end = lane / kRows, column_group = ends.group(end);
    const bool in_group = column_group * kGroup < p.d, neighbour = in_group && ends.shared(end);
    uint64_t* const largest_own = largest + (static_cast<int>(blockIdx.x) * kEnds * kRows + lane);
    const uint64_t* const largest_other =
        largest + ((static_cast<int>(blockIdx.x) + (end == 0 ? -1 : 1)) * kEnds + 1 - end) * kRows + lane % kRows;
    float own[kLag] = {};  // of the tiles before, the latest first
    int waiting = 0;       // rows whose products are complete
    const auto finish_rows = [&] {
      __syncwarp();
      make_coefficients(p, shared.base, shared.scale, team.finish, team.finish_row, waiting);
      waiting = 0;
      __syncwarp();
    };

    for (int i = 0; i < (kExchange ? tiles.count + kLag : tiles.count); ++i) {
      if (i + 1 < tiles.count) coefficients.load(p, tiles, i + 1);
      const int ready = i - kLag;
      const uint32_t expected = tag + 1 + ready;
      const int64_t slot = int64_t{static_cast<int>(expected % kRing)} * slices;
      float product = 0;
      int row = kRows, first = 0;  // the row of tile `ready` whose coefficients are made here, if any
      if (kExchange && ready >= 0) {
        if constexpr (Mix) {
          // The rows of a tile are dealt to the slices, from another one on for each tile.
          first = tiles.row(ready);
          const int start = (first + (tiles.first + ready) * kRows) % slices;
          row = blockIdx.x < start ? blockIdx.x + slices - start : blockIdx.x - start;
          if (first + row >= p.rows) row = kRows;
        }
        // Squares of x: lane (half, local) adds every second slice. With the usual number of slices there is at most one row
        // of products, and it comes along.
        const int half = lane / kRows, local = lane % kRows;
        const uint64_t* from = squares + (slot + half) * kRows + local;
        uint64_t word = 0;
        if (Round && neighbour) word = peek(largest_other + slot * (kEnds * kRows));
        float sum;
        if (slices == kUsualSlices) {
          const bool along = row < kRows && lane < kSent;
          const float2 both = receive_both<kUsualSlices / 2, 2 * kRows, kUsualSlices, kRows * kSent>(
              from, along ? products + (slot * kRows + row) * kSent + lane : nullptr, expected);
          sum = both.x;
          product = both.y;
        } else {
          sum = receive_sum(from, 2 * kRows, (slices - half + 1) / 2, expected);
        }
        sum += __shfl_xor_sync(kFullWarp, sum, kRows);
        const float x_scale = inverse_rms(sum, p.d, p.norm_eps);
        if (lane < kRows) team.x_scale[ready % 2][lane] = x_scale;
        if constexpr (Round) {
          float top = own[kLag - 1];
          if (neighbour) {
            while (!carries(word, expected)) word = peek(largest_other + slot * (kEnds * kRows));
            top = fmaxf(top, value_of(word));
          }
          const float scale = from_ue8m0(q1_scale(round_bf16(top * x_scale)));
          team.q4_inverse[ready % 2][end][local] = reciprocal_of_power(scale);
          // By the slice that has the group's first columns.
          if (in_group && (end == 1 || !neighbour) && tiles.row(ready) + local < p.rows)
            p.rounded.scales[int64_t{column_group} * p.rounded.padded + tiles.row(ready) + local] = scale;
        }
      }
      copy_async_wait<0>();
      named_barrier(barrier, kTeamThreads);
      if constexpr (Round) {
#pragma unroll
        for (int n = kLag - 1; n > 0; --n) own[n] = own[n - 1];
        if (i < tiles.count) {
          own[0] = 0;
#pragma unroll
          for (int w = 0; w < kWarps; ++w)
            if (ends.of(w) == end) own[0] = fmaxf(own[0], team.largest[i % 2][w][lane % kRows]);
          const uint32_t now = tag + 1 + i;
          send(largest_own + int64_t{static_cast<int>(now % kRing)} * slices * (kEnds * kRows), own[0], now);
        }
      }
      for (; row < kRows && first + row < p.rows; row += slices) {
        if (lane < kSent) {
          if (slices != kUsualSlices)
            product = receive_sum(products + (slot * kRows + row) * kSent + lane, kRows * kSent, slices, expected);
          team.finish[waiting][lane] = product;
          if (lane == 0) team.finish_row[waiting] = first + row;
        }
        if (++waiting == kFinishRows) finish_rows();
      }
    }
    if constexpr (Mix) finish_rows();
  }

  static __device__ __forceinline__ void run(const Pass& p) {
    extern __shared__ __align__(128) uint8_t bytes[];
    auto& shared = *reinterpret_cast<Shared*>(bytes);
    const int teams = blockDim.x / kTeamThreads, number = threadIdx.x / kTeamThreads;
    const int warp = threadIdx.x % kTeamThreads / 32, slices = gridDim.x, all = (p.rows + kRows - 1) / kRows;
    Team& team = shared.team[number];
    const int first = blockIdx.y + number * gridDim.y, step = teams * gridDim.y;
    const Tiles tiles{first, step, first < all ? (all - first + step - 1) / step : 0};
    const int channel = blockIdx.y * kTeams + number;
    Compute work(p, shared, team, tiles, warp);
    const Coefficients coefficients(p, team);
    const Carrier carrier(p, team, tiles);
    if (Mix && warp < kWarps && work.active)
      teams == 1 ? load_fn<kCopies>(p, work.column, 0, shared.fn[warp])
                 : load_fn<kCopies / kTeams>(p, work.column, number * (kCopies / kTeams), shared.fn[warp]);
    if (Mix && threadIdx.x < kMixes) shared.base[threadIdx.x] = p.base[threadIdx.x];
    if (Mix && threadIdx.x < 3) shared.scale[threadIdx.x] = p.scale[threadIdx.x];
    if (warp == kCarries && threadIdx.x % 32 == 0) {
      for (uint64_t& full : team.full) mbarrier_init(&full, 1);
      mbarrier_init_fence();
      if (p.source == nullptr && p.y_source == nullptr) {
        prefetch_map(&p.h_boxes);
        if constexpr (Write) prefetch_map(&p.y_boxes);
      }
    }
    wait_for_previous();
    let_next_start();
    if (warp == kCarries) {
      __syncwarp();
      for (int i = 0; i < kStages; ++i) carrier.fetch(i);
    } else if (warp == kWarps && tiles.count > 0) {
      coefficients.load(p, tiles, 0);
      if (kExchange && threadIdx.x % 32 == 0) team.tag = __ldcg(p.tags + channel);
      copy_async_wait<0>();
    }
    __syncthreads();
    if (tiles.count == 0) return;
    uint64_t* squares = p.squares + int64_t{channel} * kRing * slices * kRows;
    uint64_t* products = p.products + int64_t{channel} * kRing * slices * kRows * kSent;
    uint64_t* largest = p.largest + int64_t{channel} * kRing * slices * kEnds * kRows;
    if (warp < kWarps) {
      work.run(carrier, 1 + number, squares, products);
    } else {
      const uint32_t tag = team.tag;
      receive_sums(p, shared, team, 1 + number, tiles, coefficients, tag, squares, products, largest);
      // Every slice has sent its last sums, and had read its tag before.
      if (kExchange && blockIdx.x == 0 && threadIdx.x % 32 == 0) p.tags[channel] = tag + tiles.count;
      // Without mixing the coefficients stay what they are.
      if (!Mix && p.pre_out != nullptr && blockIdx.x == 0)
        for (int i = 0; i < tiles.count; ++i)
          for (int n = threadIdx.x % 32; n < kRows * kCopies; n += 32) {
            const int row = tiles.row(i) + n / kCopies;
            if (row >= p.rows) continue;
            const int64_t s = p.source != nullptr ? p.source[row] : row;
            p.pre_out[int64_t{row} * kCopies + n % kCopies] = p.pre[s * kCopies + n % kCopies];
          }
    }
  }
};

template <bool Write, bool Collapse, bool Mix, bool Round>
__global__ void __launch_bounds__(kTeams* kTeamThreads, 1) streams_kernel(const __grid_constant__ Pass p) {
  Streams<Write, Collapse, Mix, Round>::run(p);
}

template <bool Write, bool Collapse, bool Mix, bool Round>
void launch_streams(CudaContext& cuda, const Pass& p) {
  const int slices = (p.d + kColumns - 1) / kColumns, tiles = (p.rows + kRows - 1) / kRows;
  const int groups = std::min(tiles, cuda.multiprocessors() / slices);
  const int teams = tiles > groups ? kTeams : 1;
  launch("streams", streams_kernel<Write, Collapse, Mix, Round>,
         {.grid = dim3(slices, groups),
          .block = dim3(teams * kTeamThreads),
          .shared = Shared::bytes(teams),
          .stream = cuda.stream(),
          .cooperative = Collapse || Mix,
          .early = true},
         p);
}

}  // namespace

bool streams_take(const CudaContext& cuda, const HyperConnectionArgs& args) {
  return args.copies == kCopies && args.d % 32 == 0 && (args.d + kColumns - 1) / kColumns <= cuda.multiprocessors();
}

bool streams_round(const HyperConnectionArgs& args) {
  return args.mix != nullptr && args.norm != nullptr && args.d % kGroup == 0;
}

void hyper_connection_streams(CudaContext& cuda, const HyperConnectionArgs& args) {
  const bool write = static_cast<bool>(args.y), mix = args.mix != nullptr;
  const bool collapse = args.norm != nullptr || static_cast<bool>(args.collapsed);
  Pass p{};
  p.rows = args.rows, p.d = args.d, p.sinkhorn_iters = args.sinkhorn_iters;
  p.hc_eps = args.hc_eps, p.norm_eps = args.norm_eps;
  p.h = args.in.h.bf16();
  if (args.in.pre) p.pre = args.in.pre.f32();
  if (write) p.post = args.in.post.f32(), p.comb = args.in.comb.f32(), p.y = args.y.bf16();
  p.source = args.source, p.y_source = args.y_source;
  // Rows that stay as they are and where they are need no second writing.
  if (args.out.h && (write || args.out.h.data != args.in.h.data)) p.h_out = args.out.h.bf16();
  if (args.x) p.x = args.x.bf16();
  if (args.x_rounded) p.rounded = fp8_rows(args.x_rounded);
  if (args.collapsed) p.collapsed = args.collapsed.bf16();
  if (p.source == nullptr && p.y_source == nullptr) {
    p.h_boxes = slice_boxes(p.h, args.rows, kCopies, args.d, kRows, kColumns);
    if (write) p.y_boxes = slice_boxes(p.y, args.rows, 1, args.d, kRows, kColumns);
  }
  if (p.h_out != nullptr) p.h_out_boxes = slice_boxes(p.h_out, args.rows, kCopies, args.d, kRows, kColumns);
  p.norm = args.norm;
  if (mix) p.fn = args.mix->fn, p.base = args.mix->base, p.scale = args.mix->scale;
  if (args.out.pre) p.pre_out = args.out.pre.f32();
  if (mix) p.post_out = args.out.post.f32(), p.comb_out = args.out.comb.f32();
  if (mix || collapse) {
    // What CTAs send each other, laid out by the number of slices alone.
    const int slices = (args.d + kColumns - 1) / kColumns, channels = cuda.multiprocessors() / slices * kTeams;
    const size_t words = static_cast<size_t>(channels) * kRing * slices * kRows;
    auto* memory = static_cast<uint64_t*>(cuda.lasting(
        std::string("hyper-connections of ") + std::to_string(slices) + " slices",
        words * (1 + kSent + kEnds) * sizeof(uint64_t) + static_cast<size_t>(channels) * sizeof(uint32_t)));
    p.squares = memory;
    p.products = memory + words;
    p.largest = p.products + words * kSent;
    p.tags = reinterpret_cast<uint32_t*>(p.largest + words * kEnds);
  }

  const auto choose = [](bool on, const auto& then) { on ? then(std::true_type{}) : then(std::false_type{}); };
  choose(write, [&](auto w) {
    choose(collapse, [&](auto c) {
      choose(mix, [&](auto m) {
        constexpr bool kWrite = decltype(w)::value, kCollapse = decltype(c)::value, kMix = decltype(m)::value;
        if constexpr (kCollapse && kMix)
          if (p.rounded) return launch_streams<kWrite, true, true, true>(cuda, p);
        launch_streams<kWrite, kCollapse, kMix, false>(cuda, p);
      });
    });
  });
}

}  // namespace hadal::cuda
