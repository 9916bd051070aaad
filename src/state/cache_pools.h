// The memory of all requests' state: paged compressed rows and index keys, window rings, pending halves.   spec 4
//
// Sizes come from the configuration; the pools are allocated once, so memory cannot run over while serving.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/types.h"

namespace hadal {

struct CacheLayout {
  int layers = 0;        // backbone layers, each with a window ring
  int draft_stages = 0;  // draft stages, each with a window ring
  int window = 0;
  int head_dim = 0;
  int index_dim = 0;
  struct Owner {
    int layer = 0;
    int ratio = 0;
  };
  std::vector<Owner> owners;  // layers that own compressed rows and index keys, ascending
  // A page covers this many tokens in every owner's pool; a multiple of every ratio.
  int page_tokens = 128;

  int owner_index(int layer) const;
  int64_t bytes_per_page() const;  // all owners
  int64_t bytes_per_slot() const;  // all rings and pending halves of one request
};

class CachePools {
 public:
  // `slots` requests at a time, `pages` pages of page_tokens tokens in all.
  CachePools(Context& context, CacheLayout layout, int slots, int pages);
  CachePools(const CachePools&) = delete;
  CachePools& operator=(const CachePools&) = delete;

  Context& context() const { return context_; }
  const CacheLayout& layout() const { return layout_; }

  WindowRing ring(int layer) const;  // 0 .. layers - 1
  WindowRing draft_ring(int stage) const;
  PagedRows entries(int owner) const;
  PagedRows keys(int owner) const;
  float* pending(int owner) const;  // [slots, 2 * head_dim]; null at ratio 1

  int acquire_slot();  // throws out_of_memory when all are taken
  void release_slot(int slot);
  int acquire_page();  // with one reference
  void retain_page(int page) { ++references_[static_cast<size_t>(page)]; }
  void release_page(int page);
  bool shared(int page) const { return references_[static_cast<size_t>(page)] > 1; }
  void copy_page(int to, int from);

  int free_slots() const { return static_cast<int>(free_slots_.size()); }
  int free_pages() const { return static_cast<int>(free_pages_.size()); }

  // One request's rings and pending halves as one block, for snapshots.
  size_t slot_bytes() const { return static_cast<size_t>(layout_.bytes_per_slot()); }
  void save_slot(int slot, uint8_t* host) const;
  void load_slot(int slot, const uint8_t* host);

  // The rows that the first `tokens` tokens of a page have written, of all owners as one block, for storage.
  size_t page_bytes(int64_t tokens) const;
  void save_page(int page, int64_t tokens, uint8_t* host) const;
  void load_page(int page, int64_t tokens, const uint8_t* host);

 private:
  struct SlotPart {  // a pool indexed by slot
    uint8_t* base;
    size_t bytes;  // per slot
  };
  struct PagePart {  // rows of one owner in a page
    uint8_t* rows;
    size_t bytes;
  };
  std::vector<PagePart> page_parts(int page, int64_t tokens) const;

  Context& context_;
  CacheLayout layout_;
  int slots_;
  int pages_;
  std::vector<uint8_t*> rings_;  // layers, then draft stages
  std::vector<PagedRows> entries_, keys_;
  std::vector<float*> pending_;
  std::vector<SlotPart> slot_parts_;
  std::vector<int> free_slots_, free_pages_;
  std::vector<int> references_;
};

}  // namespace hadal
