// The ranks of one process: memory that they write to each other, on one GPU or on several that reach each other.
#pragma once

#include <memory>
#include <vector>

#include "parallel/exchange_kernels.h"

namespace hadal::cuda {

struct ExchangeOptions {
  ExchangeShape shape;        // stride: the most places of a rank in any step
  std::vector<int> devices;   // of each rank; several ranks may share one
  double patience = 10;       // seconds that a rank waits for another one, at most 3,600
  bool copy_engines = false;  // room for copy(), which needs as much again for combine
};

// A step of rank r, on a stream of its device:
//     dispatch_send, dispatch_receive, [plan_rows, place_rows, the experts], combine
// Dispatch and combine alternate: only then is nobody's memory written while it is still read. Two batches that overlap
// have an exchange each. Where ranks share a GPU, all must have begun to send before one fills it up with waiting: the
// blocks of all of them together are fewer than its multiprocessors.
class Exchange {
 public:
  // Throws invalid_argument for the options, unsupported where a GPU cannot reach another one's memory.
  explicit Exchange(const ExchangeOptions& options);

  int device(int rank) const { return options_.devices[rank]; }
  // What the kernels of a step are given: all ranks the same stride, `rank` has `tokens` of it.
  ExchangeView view(int rank, int stride, int tokens) const;
  // The same for rows that copy() moves in place of the kernels.
  ExchangeView staged_view(int rank, int stride, int tokens) const;
  // Behind dispatch_send or combine_send of a staged view: every row, needed or not, to every other rank by copy
  // engines, then the announcement.
  void copy(const ExchangeView& staged, ExchangePart part, cudaStream_t stream) const;
  // Throws `internal` once a rank has waited in vain, naming both ranks. For when a step has ended.
  void check() const;

 private:
  ExchangeOptions options_;
  RankMemory memory_[kMaxRanks] = {};
  uint16_t* staging_[kMaxRanks] = {};
  struct Free {
    int device;  // -1: pinned memory of the host
    void operator()(void* data) const;
  };
  std::vector<std::unique_ptr<void, Free>> owned_;
  ExchangeFailure* failures_ = nullptr;  // [kMaxRanks]
};

}  // namespace hadal::cuda
