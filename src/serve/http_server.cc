// The HTTP/1.1 server: Asio for sockets, Beast's parser for requests. All of Boost's networking is in this file, in
// http_connection.cc and in their two headers.
#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "serve/http_connection.h"

namespace hadal::serve {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, HttpHandler handler, ErrorBody error_body)
      : shared_(std::move(options), std::move(handler), std::move(error_body)),
        io_(options_.io_threads),
        acceptor_(io_),
        accept_strand_(net::make_strand(io_)) {
    if (!options_.certificate_file.empty() || !options_.key_file.empty()) load_certificate();
    listen();
    net::co_spawn(accept_strand_, accept(), net::detached);
    for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { io_.run(); });
  }

  ~Impl() { stop(); }

  int port() const { return port_; }

  bool drain(Milliseconds time) {
    shared_.draining = true;
    net::post(accept_strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    for_each_connection([](HttpConnection& c) { c.drain(); });
    const Clock::time_point deadline = Clock::now() + time;
    while (counters_.exchanges > 0 && Clock::now() < deadline) std::this_thread::sleep_for(Milliseconds(5));
    return counters_.exchanges == 0;
  }

  void stop() {
    if (std::exchange(stopped_, true)) return;
    shared_.draining = true;
    net::post(accept_strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    // Handlers first: each may still open an exchange on a connection that is about to close.
    shared_.workers.join();
    // A connection that was being accepted shows up late, so ask until there is none.
    while (counters_.connections > 0) {
      for_each_connection([](HttpConnection& c) { c.close(); });
      std::this_thread::sleep_for(Milliseconds(1));
    }
    io_.stop();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

  HttpServerStats stats() const {
    return {counters_.connections, counters_.exchanges, counters_.connections_total,
            counters_.refused,     counters_.slow,      counters_.aborted};
  }

 private:
  void load_certificate() {
    error_code error;
    net::ssl::context& tls = shared_.tls.emplace(net::ssl::context::tls_server);
    tls.set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 |
                    net::ssl::context::no_tlsv1_1);
    tls.use_certificate_chain_file(options_.certificate_file, error);
    if (error)
      fail(ErrorKind::invalid_data, "cannot use the certificate '{}': {}", options_.certificate_file, error.message());
    tls.use_private_key_file(options_.key_file, net::ssl::context::pem, error);
    if (error) fail(ErrorKind::invalid_data, "cannot use the key '{}': {}", options_.key_file, error.message());
  }

  void listen() {
    error_code error;
    const net::ip::address address =
        options_.host == "localhost" ? net::ip::address_v4::loopback() : net::ip::make_address(options_.host, error);
    if (error) fail(ErrorKind::invalid_argument, "--host {} is no numeric address", options_.host);
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error)
      fail(ErrorKind::io, "cannot listen on {}:{}: {}; --port 0 takes any free port", options_.host, options_.port,
           error.message());
    port_ = acceptor_.local_endpoint().port();
  }

  net::awaitable<void> accept() {
    while (!shared_.draining) {
      Strand strand = net::make_strand(io_);
      tcp::socket socket(strand);
      error_code error;
      co_await acceptor_.async_accept(socket, net::redirect_error(net::use_awaitable, error));
      if (error == net::error::operation_aborted || error == net::error::bad_descriptor) co_return;
      if (error) {
        // Usually out of descriptors: connections that end will free some.
        log::warn("cannot accept a connection: {}", error.message());
        net::steady_timer timer(accept_strand_, Milliseconds(100));
        co_await timer.async_wait(net::redirect_error(net::use_awaitable, error));
        continue;
      }
      auto connection = std::make_shared<HttpConnection>(shared_, std::move(socket), strand);
      {
        const std::lock_guard lock(shared_.mutex);
        shared_.connections.insert(connection.get());
      }
      net::co_spawn(
          strand, [connection]() -> net::awaitable<void> { co_await connection->run(); }, net::detached);
    }
  }

  template <typename F>
  void for_each_connection(F f) {
    std::vector<std::shared_ptr<HttpConnection>> all;
    {
      const std::lock_guard lock(shared_.mutex);
      for (HttpConnection* c : shared_.connections)
        if (auto shared = c->weak_from_this().lock()) all.push_back(std::move(shared));
    }
    for (const auto& c : all) net::post(c->strand(), [c, f] { f(*c); });
  }

  HttpShared shared_;
  const HttpServerOptions& options_ = shared_.options;
  HttpCounters& counters_ = shared_.counters;
  net::io_context io_;
  // Without it the threads end once nobody listens and no connection is left, and an exchange that its handler lets go of after
  // that is never counted off: drain() waited for it all its time.
  net::executor_work_guard<net::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_;
  Strand accept_strand_;
  std::vector<std::thread> threads_;
  int port_ = 0;
  bool stopped_ = false;
};

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler, ErrorBody error_body)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(error_body))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
bool HttpServer::drain(std::chrono::milliseconds time) { return impl_->drain(time); }
void HttpServer::stop() { impl_->stop(); }
HttpServerStats HttpServer::stats() const { return impl_->stats(); }

int64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace hadal::serve
