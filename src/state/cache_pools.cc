#include "state/cache_pools.h"

#include <numeric>

#include "base/error.h"

namespace hadal {

int CacheLayout::owner_index(int layer) const {
  for (size_t i = 0; i < owners.size(); ++i)
    if (owners[i].layer == layer) return static_cast<int>(i);
  fail(ErrorKind::internal, "layer {} owns no compressed rows", layer);
}

int64_t CacheLayout::bytes_per_page() const {
  int64_t bytes = 0;
  for (const Owner& owner : owners)
    bytes += static_cast<int64_t>(page_tokens / owner.ratio) *
             static_cast<int64_t>(row_bytes(RowFormat::fp4_e4m3_16, head_dim) +
                                  row_bytes(RowFormat::fp4_ue8m0_32, index_dim));
  return bytes;
}

int64_t CacheLayout::bytes_per_slot() const {
  int64_t bytes = static_cast<int64_t>(layers + draft_stages) * window *
                  static_cast<int64_t>(row_bytes(RowFormat::fp8_ue8m0_32, head_dim));
  for (const Owner& owner : owners)
    if (owner.ratio > 1) bytes += static_cast<int64_t>(2 * head_dim) * static_cast<int64_t>(sizeof(float));
  return bytes;
}

CachePools::CachePools(Context& context, CacheLayout layout, int slots, int pages)
    : context_(context), layout_(std::move(layout)), slots_(slots), pages_(pages) {
  const auto ring_row = row_bytes(RowFormat::fp8_ue8m0_32, layout_.head_dim);
  const size_t ring_bytes = ring_row * static_cast<size_t>(layout_.window);
  for (int l = 0; l < layout_.layers + layout_.draft_stages; ++l) {
    rings_.push_back(static_cast<uint8_t*>(context_.allocate_cache(ring_bytes * static_cast<size_t>(slots))));
    slot_parts_.push_back({rings_.back(), ring_bytes});
  }
  for (const CacheLayout::Owner& owner : layout_.owners) {
    HADAL_CHECK(layout_.page_tokens % owner.ratio == 0);
    const int page_rows = layout_.page_tokens / owner.ratio;
    const auto make_pool = [&](size_t bytes) {
      void* rows = context_.allocate_cache(bytes * static_cast<size_t>(page_rows) * static_cast<size_t>(pages));
      return PagedRows{static_cast<uint8_t*>(rows), static_cast<int>(bytes), page_rows, pages};
    };
    entries_.push_back(make_pool(row_bytes(RowFormat::fp4_e4m3_16, layout_.head_dim)));
    keys_.push_back(make_pool(row_bytes(RowFormat::fp4_ue8m0_32, layout_.index_dim)));
    if (owner.ratio == 1) {
      pending_.push_back(nullptr);
      continue;
    }
    const size_t bytes = 2 * static_cast<size_t>(layout_.head_dim) * sizeof(float);
    pending_.push_back(static_cast<float*>(context_.allocate_cache(bytes * static_cast<size_t>(slots))));
    slot_parts_.push_back({reinterpret_cast<uint8_t*>(pending_.back()), bytes});
  }
  free_slots_.resize(static_cast<size_t>(slots));
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);  // the lowest is taken first
  free_pages_.resize(static_cast<size_t>(pages));
  std::iota(free_pages_.rbegin(), free_pages_.rend(), 0);
  references_.assign(static_cast<size_t>(pages), 0);
}

WindowRing CachePools::ring(int layer) const {
  return {rings_[static_cast<size_t>(layer)], static_cast<int>(row_bytes(RowFormat::fp8_ue8m0_32, layout_.head_dim)),
          layout_.window};
}
WindowRing CachePools::draft_ring(int stage) const { return ring(layout_.layers + stage); }
PagedRows CachePools::entries(int owner) const { return entries_[static_cast<size_t>(owner)]; }
PagedRows CachePools::keys(int owner) const { return keys_[static_cast<size_t>(owner)]; }
float* CachePools::pending(int owner) const { return pending_[static_cast<size_t>(owner)]; }

int CachePools::acquire_slot() {
  if (free_slots_.empty())
    fail(ErrorKind::out_of_memory, "all {} request slots are in use; raise the number of concurrent requests", slots_);
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void CachePools::release_slot(int slot) { free_slots_.push_back(slot); }

int CachePools::acquire_page() {
  if (free_pages_.empty())
    fail(ErrorKind::out_of_memory, "all {} cache pages of {} tokens are in use; shorten the context or give more cache",
         pages_, layout_.page_tokens);
  const int page = free_pages_.back();
  free_pages_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void CachePools::release_page(int page) {
  int& count = references_[static_cast<size_t>(page)];
  HADAL_CHECK(count > 0);
  if (--count == 0) free_pages_.push_back(page);
}

void CachePools::copy_page(int to, int from) {
  for (const auto* pools : {&entries_, &keys_})
    for (const PagedRows& pool : *pools) {
      const size_t bytes = static_cast<size_t>(pool.page_rows) * static_cast<size_t>(pool.row_bytes);
      context_.copy_on_device(pool.rows + static_cast<size_t>(to) * bytes,
                              pool.rows + static_cast<size_t>(from) * bytes, bytes);
    }
}

std::vector<CachePools::PagePart> CachePools::page_parts(int page, int64_t tokens) const {
  std::vector<PagePart> parts;
  for (const auto* pools : {&entries_, &keys_})
    for (const PagedRows& pool : *pools) {
      const int64_t ratio = layout_.page_tokens / pool.page_rows;
      const auto row = static_cast<size_t>(pool.row_bytes);
      parts.push_back({pool.rows + static_cast<size_t>(page) * static_cast<size_t>(pool.page_rows) * row,
                       static_cast<size_t>(tokens / ratio) * row});
    }
  return parts;
}

size_t CachePools::page_bytes(int64_t tokens) const {
  size_t bytes = 0;
  for (const PagePart& part : page_parts(0, tokens)) bytes += part.bytes;
  return bytes;
}

void CachePools::save_page(int page, int64_t tokens, uint8_t* host) const {
  for (const PagePart& part : page_parts(page, tokens)) {
    context_.download(host, part.rows, part.bytes);
    host += part.bytes;
  }
}

void CachePools::load_page(int page, int64_t tokens, const uint8_t* host) {
  for (const PagePart& part : page_parts(page, tokens)) {
    context_.copy_to_device(part.rows, host, part.bytes);
    host += part.bytes;
  }
}

void CachePools::save_slot(int slot, uint8_t* host) const {
  for (const SlotPart& part : slot_parts_) {
    context_.download(host, part.base + static_cast<size_t>(slot) * part.bytes, part.bytes);
    host += part.bytes;
  }
}

void CachePools::load_slot(int slot, const uint8_t* host) {
  for (const SlotPart& part : slot_parts_) {
    context_.copy_to_device(part.base + static_cast<size_t>(slot) * part.bytes, host, part.bytes);
    host += part.bytes;
  }
}

}  // namespace hadal
