// The half of the matrix attention that multiplies: warpgroups 0 and 1, one query after the other.
//
// Group g has the tiles of its parity: it multiplies them with the query and finds their probabilities. Both tiles' values
// are added to columns 256 g .. 256 g + 255, 128 at a time, so that one half is moved to the new maximum while the matrix
// unit adds to the other. The odd group comes behind the even one: the even tile's values are added in the middle of its
// softmax. What is done with is let go at once, for a tile takes 1,500 cycles to come.
//
// What is in shared memory, S:
//   kKeySlab, kTileStride  bytes between slabs of 64 channels of the keys, and between the tiles of a pair
//   query, tile            64-row slabs of the query; keys
//   probability [2]        [head][key] of a tile
//   sink [2][heads]        in powers of two, for each group
//   top, total [2][heads]  running maximum after a tile; sums of the even and the odd tiles
//   rotation [4][32]       of four queries in turn
//   query_full, query_empty, full[tile][half], empty[tile][half]
//   kWindow = false: pairs of tiles come and go. count [4]: of a query, its turn modulo 4.
//   kWindow = true: queries of at most two tiles, whose keys stay for as long as a span [2] says.
#pragma once

#include "ops/cuda/hopper.cuh"
#include "ops/cuda/row.cuh"
#include "ops/cuda/wgmma.cuh"
#include "ops/sparse_attention/kernels.h"
#include "ops/sparse_attention/softmax.cuh"
#include "ops/sparse_attention/tile.cuh"

namespace hadal::cuda {

// Keys of a query among those that lie in shared memory.
struct KeySpan {
  int count, first;
  bool fresh, last;  // the first and the last query of these keys
};

// Named barriers; 3 is the producers', 8 that of the first keys (window.cu).
enum : int { kTopReady = 1, kEvenReady = 2, kOddReady = 4, kEvenDone = 5, kRotations = 6, kOddDone = 7 };
__device__ __forceinline__ void announce(int barrier) { asm volatile("bar.arrive %0, 256;" ::"r"(barrier) : "memory"); }

template <int Half>
__device__ __forceinline__ void rescale(float (&sum)[128], const float (&factor)[2]) {
#pragma unroll
  for (int i = 64 * Half; i < 64 * Half + 64; ++i) {
    sum[i] *= factor[i >> 1 & 1];
    // The compiler would move it past the fence, and then add one of its own that serialises the matrix unit.
    asm volatile("" : "+f"(sum[i])::"memory");
  }
  wgmma_fence();
}
// 128 of the 256 columns: with four warpgroups ptxas has 128 registers at entry and refuses wider products. The operand:
// registers of the group's own tile, or shared memory.
template <bool Own>
__device__ __forceinline__ void add_values(float* sum, const uint32_t (&own)[4][4], uint64_t other, uint64_t values) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if constexpr (Own)
      Wgmma<128>::rs<1>(sum, own[k], values + k * 128, 1);
    else
      Wgmma<128>::ss<1>(sum, other + k * 2, values + k * 128, 1);
  }
  wgmma_commit();
}

// Rotations of four queries, of which thread / 32 has the position, in double, by group 1, which has the channels that they
// are for.
template <typename S>
__device__ __forceinline__ void find_rotations(S& s, const AttentionProblem& p, int position, int thread) {
  const int pair = thread % 32;
  if (pair < p.args.rope.dim / 2) s.rotation[thread / 32][pair] = rotation(p.args.rope, pair, position);
  named_barrier(kRotations, 128);
}

// Queries begin, begin + step, ... before end. The first rotations are found before the wait for the kernel in front.
template <int Group, typename S>
__device__ __forceinline__ void consume(S& s, const AttentionProblem& p, int begin, int end, int step, int thread) {
  constexpr int kOther = Group ^ 1, kTurns = S::kWindow ? 2 : 4;
  constexpr uint32_t kTwoSlabs = 2 * S::kKeySlab / 16;
  const int warp = thread >> 5, lane = thread & 31;
  const int head = warp * 16 + (lane >> 2);
  const float scale = p.args.scale * kLog2e / kStoredScale;  // scores in powers of two
  const uint64_t query = k_major_descriptor(smem_address(s.query));
  const uint32_t tiles = smem_address(s.tile);
  // Of descriptors the lower halves: the upper ones are constants.
  const auto lower = [](uint64_t descriptor) { return static_cast<uint32_t>(descriptor); };
  const auto whole = [](uint32_t low) { return mn_major_descriptor(0, 0) | low; };
  uint32_t keys = lower(k_major_descriptor(tiles + Group * S::kTileStride));
  uint32_t values[2] = {lower(mn_major_descriptor(tiles + Group * 4 * S::kKeySlab, S::kKeySlab)),
                        lower(mn_major_descriptor(tiles + S::kTileStride + Group * 4 * S::kKeySlab, S::kKeySlab))};
  const uint64_t other_probability = k_major_descriptor(smem_address(s.probability[kOther]));
  // A load from memory at the end of every query would show: it misses L1 beside all this shared memory.
  if (lane < 16) s.sink[Group][warp * 16 + lane] = p.args.sink[warp * 16 + lane] * kLog2e;
  __syncwarp();
  uint32_t parity = 0, query_parity = 0;
  const auto position = [&](int q) { return q < end ? __ldg(&p.out.position[q]) : 0; };
  int next_position = 0;
  if constexpr (Group == 1) {
    find_rotations(s, p, position(begin + thread / 32 * step), thread);
    next_position = position(begin + (4 + thread / 32) * step);
  }
  wait_for_previous();
  KeySpan span{};
  for (int q = begin, n = 0; q < end; q += step, ++n) {
    const int turn = n % kTurns;
    if (Group == 1 && n > 0 && n % 4 == 0) {
      named_barrier(kRotations, 128);
      find_rotations(s, p, next_position, thread);
      next_position = position(q + (4 + thread / 32) * step);
    }
    float sum[128], top[2] = {kNoTop, kNoTop}, total[2] = {0, 0}, other_total[2], factor[2][2];  // [tile][row]
#pragma unroll
    for (int i = 0; i < 128; ++i) sum[i] = 0;
    mbarrier_wait(&s.query_full, query_parity);
    query_parity ^= 1;
    if constexpr (S::kWindow) {
      // Rows of 128 bytes: neither operand's rows need begin at a multiple of eight, for the swizzle is one of addresses.
      const int moved = 8 * (s.span[turn].first - span.first);
      span = s.span[turn];
      keys += moved;
      values[0] += moved;
      values[1] += moved;
    }
    int pair = 0, pairs;
    do {
      float score[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) score[i] = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!S::kWindow || span.fresh) mbarrier_wait(&s.full[Group][half], parity);
        fence_async_shared();  // keys and query came by cp.async
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 16; ++k) {
          const int slab = half * 4 + (k >> 2), within = (k & 3) * 2;
          Wgmma<64>::ss(score, query + slab * (kSlabBytes / 16) + within,
                        whole(keys + slab * (S::kKeySlab / 16) + within), 1);
        }
        wgmma_commit();
      }
      int count;
      if constexpr (S::kWindow)
        count = span.count;
      else
        count = s.count[turn];  // written before the first half was announced
      pairs = max((count + 2 * kTileKeys - 1) / (2 * kTileKeys), 1);
      const bool last = pair + 1 == pairs;
      wgmma_wait<0>();
      if (last && lane == 0) mbarrier_arrive(&s.query_empty);

      const int valid = count - (2 * pair + Group) * kTileKeys;
      if (valid < kTileKeys) {
#pragma unroll
        for (int k = 0; k < 4; ++k) mask_scores(score + 8 * k, valid - 16 * k - 2 * (lane & 3));
      }
      float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int k = 0; k < 4; ++k) largest_scores(score + 8 * k, largest);
      largest[0] = quad_max(largest[0]) * scale;
      largest[1] = quad_max(largest[1]) * scale;
      const auto follow_other = [&] {  // to the maximum after the other group's tile
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float fresh = s.top[kOther][head + 8 * i];
          factor[kOther][i] = exp2_fast(top[i] - fresh);
          top[i] = fresh;
        }
      };
      if constexpr (Group == 1) {
        named_barrier(kTopReady, 256);
        follow_other();
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float fresh = fmaxf(top[i], largest[i]);
        factor[Group][i] = exp2_fast(top[i] - fresh);
        top[i] = fresh;
        if ((lane & 3) == 0) s.top[Group][head + 8 * i] = fresh;
      }
      if constexpr (Group == 0) announce(kTopReady);

      const auto meet_other = [&] {  // its probabilities, its total, its values
        named_barrier(Group == 0 ? kOddReady : kEvenReady, 256);
        other_total[0] = s.total[kOther][head];
        other_total[1] = s.total[kOther][head + 8];
        if (!S::kWindow) mbarrier_wait(&s.full[kOther][Group], parity);
        if (S::kWindow && span.fresh) {  // later queries have keys of both tiles in each
          mbarrier_wait(&s.full[kOther][0], parity);
          mbarrier_wait(&s.full[kOther][1], parity);
        }
        fence_async_shared();
      };
      uint32_t probability[4][4];
      float part[2][4];
      const uint32_t store = smem_address(s.probability[Group]) + (warp * 16 + (lane & 15)) * 128;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (Group == 1 && k == 2) {
          meet_other();
          rescale<0>(sum, factor[0]);
          add_values<false>(sum, probability, other_probability, whole(values[0]));
          rescale<1>(sum, factor[0]);
          add_values<false>(sum + 64, probability, other_probability, whole(values[0] + kTwoSlabs));
        }
        float both[2];
        probabilities(score + 8 * k, scale, top, probability[k], both);
        part[0][k] = both[0], part[1][k] = both[1];
        store_matrix4(store + (((2 * k + (lane >> 4)) ^ (lane & 7)) << 4), probability[k][0], probability[k][1],
                      probability[k][2], probability[k][3]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (Group == 1) total[i] *= factor[0][i];
        total[i] = fmaf(total[i], factor[Group][i], quad_sum_own(part[i]));
        if (last) {
          total[i] = quad_sum(total[i]);
          if ((lane & 3) == 0) s.total[Group][head + 8 * i] = total[i];
        }
      }
      fence_async_shared();
      announce(Group == 0 ? kEvenReady : kOddReady);

      if constexpr (Group == 0) {
        rescale<0>(sum, factor[0]);
        add_values<true>(sum, probability, other_probability, whole(values[0]));
        rescale<1>(sum, factor[0]);
        add_values<true>(sum + 64, probability, other_probability, whole(values[0] + kTwoSlabs));
      }
      wgmma_wait<0>();
      if (!S::kWindow && lane == 0) mbarrier_arrive(&s.empty[0][Group]);
      if (Group == 1 && last) announce(kEvenDone);
      if constexpr (Group == 0) {
        meet_other();
        follow_other();
        // Of the last tile the even total is moved at the end.
        total[0] *= last ? 1.0f : factor[1][0];
        total[1] *= last ? 1.0f : factor[1][1];
      }
      rescale<0>(sum, factor[1]);
      add_values<Group == 1>(sum, probability, other_probability, whole(values[1]));
      rescale<1>(sum, factor[1]);
      add_values<Group == 1>(sum + 64, probability, other_probability, whole(values[1] + kTwoSlabs));
      wgmma_wait<0>();
      if (!S::kWindow && lane == 0) mbarrier_arrive(&s.empty[1][Group]);
      if (S::kWindow && span.last && lane == 0) mbarrier_arrive(&s.empty[0][0]);
      if (!S::kWindow || span.last) parity ^= 1;
    } while (++pair < pairs);

    // The other group is done with this one's probabilities, whose place the output takes.
    if constexpr (Group == 0) announce(kOddDone);
    named_barrier(Group == 0 ? kEvenDone : kOddDone, 256);
    float denominator[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float even = Group == 0 ? total[i] : other_total[i], odd = Group == 0 ? other_total[i] : total[i];
      denominator[i] = fmaf(even, factor[1][i], odd) + exp2f(s.sink[Group][head + 8 * i] - top[i]);
    }
    store_output<256>(sum, denominator, p, q, head, 256 * Group, Group == 1 ? p.args.rope.dim : 0, s.rotation[n % 4],
                      s.probability[Group]);
  }
}

}  // namespace hadal::cuda
