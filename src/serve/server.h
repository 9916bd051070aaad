// A server from start to end: listens at once, loads the model, answers until it is told to stop.
#pragma once

#include <functional>
#include <memory>

#include "hadal/engine.h"
#include "serve/http.h"
#include "serve/service.h"

namespace hadal::serve {

struct ServerOptions {
  HttpServerOptions http;
  ServiceOptions service;
  EngineOptions engine;
  std::chrono::milliseconds shutdown_time{30'000};  // for running requests to finish
};

class Server {
 public:
  // Listens; throws as HttpServer does. /health says 503 until load() is done.
  explicit Server(ServerOptions options);
  ~Server();

  // Loads the model. Throws hadal::Error.
  void load();
  int port() const { return http_->port(); }
  // No new connections; running requests have the given time, then they are cancelled and their clients told. Returns how
  // many requests were cut off. Only once.
  int64_t shut_down();

  std::shared_ptr<Engine> engine() const { return service_.engine(); }
  HttpServerStats http_stats() const { return http_->stats(); }

 private:
  const ServerOptions options_;
  Service service_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace hadal::serve
