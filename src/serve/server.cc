#include "serve/server.h"

namespace hadal::serve {

Server::Server(ServerOptions options) : options_(std::move(options)), service_(options_.service) {
  http_ = std::make_unique<HttpServer>(
      options_.http,
      [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
        service_.handle(std::move(request), std::move(exchange));
      },
      [this](int status, const std::string& message, std::string_view path) {
        return service_.error(status, message, path);
      });
  service_.watch([this] { return http_->stats(); });
}

Server::~Server() {
  // The engine's last events go to connections, so it ends before them.
  service_.close();
  http_->stop();
}

void Server::load() {
  text::Tokenizer tokenizer = text::Tokenizer::load(options_.engine.model);
  service_.ready(std::make_shared<Engine>(options_.engine), std::move(tokenizer));
}

int64_t Server::shut_down() {
  if (http_->drain(options_.shutdown_time)) {
    service_.close();
    http_->stop();
    return 0;
  }
  const int64_t left = http_->stats().exchanges;
  service_.close();
  http_->drain(std::chrono::milliseconds(1000));
  http_->stop();
  return left;
}

}  // namespace hadal::serve
