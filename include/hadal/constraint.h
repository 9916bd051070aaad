// Which tokens may come next: a grammar, seen from the sampler.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace hadal {

// The state of a grammar after the tokens so far. The engine clones it for every sample and every drafted row, so that a
// rejected draft leaves no trace. Calls on different objects may run at the same time.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<Constraint> clone() const = 0;

  // Sets bit t % 64 of word t / 64 for every token t that may come next, and clears the others; allowed covers the
  // vocabulary. At least one bit is set: end of sequence is a token like others, allowed where the text may end.
  virtual void allowed(std::span<uint64_t> allowed) const = 0;

  // Moves past a token. False, and no change, when the grammar forbids it.
  virtual bool accept(int32_t token) = 0;
};

}  // namespace hadal
