#include "hadal/engine.h"

#include "engine/loop.h"

namespace hadal {

Engine::Engine(const EngineOptions& options) : loop_(std::make_unique<Loop>(options)) {}
Engine::~Engine() = default;
RequestId Engine::submit(Request request, EventHandler handler) {
  return loop_->submit(std::move(request), std::move(handler));
}
bool Engine::cancel(RequestId id, int sample) { return loop_->cancel(id, sample); }
EngineStats Engine::stats() const { return loop_->stats(); }
const MemoryPlan& Engine::memory_plan() const { return loop_->memory_plan(); }
void Engine::clear_prefix_cache() { loop_->clear_prefix_cache(); }
std::string Engine::backend() const { return loop_->backend(); }
int64_t Engine::context_length() const { return loop_->config().max_position_embeddings; }
int Engine::vocab_size() const { return loop_->config().vocab_size; }
int32_t Engine::eos_token() const { return loop_->config().eos_token_id; }

}  // namespace hadal
