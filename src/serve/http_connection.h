// One connection of the HTTP server; only for http_server.cc and http_connection.cc.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <mutex>
#include <unordered_set>

#include "serve/http_answer.h"

namespace hadal::serve {

namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;

class HttpConnection;

// What a server's connections share.
struct HttpShared {
  HttpShared(HttpServerOptions o, HttpHandler h, HttpServer::ErrorBody e)
      : options(std::move(o)),
        handler(std::move(h)),
        error_body(std::move(e)),
        workers(static_cast<size_t>(options.worker_threads)) {}

  const HttpServerOptions options;
  const HttpHandler handler;
  const HttpServer::ErrorBody error_body;
  HttpCounters counters;
  std::optional<net::ssl::context> tls;
  net::thread_pool workers;
  std::atomic<bool> draining{false};
  std::mutex mutex;
  std::unordered_set<HttpConnection*> connections;  // guarded by the mutex
};

// Two coroutines on one strand: one reads bytes into the buffer as long as there is room, so that the end of the client is seen
// whatever else goes on; the other parses requests and sends answers.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpShared& server, tcp::socket socket, Strand strand);
  ~HttpConnection();

  const Strand& strand() const { return strand_; }
  net::awaitable<void> run();

  // On the strand.
  void drain();
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  using Parser = http::request_parser<http::string_body>;

  // Wakes a coroutine of the same strand. A signal that comes before the wait is not lost.
  class Signal {
   public:
    explicit Signal(const Strand& strand) : timer_(strand) {}
    void set() {
      set_ = true;
      timer_.cancel();
    }
    // False when `deadline` came first.
    net::awaitable<bool> wait(Clock::time_point deadline);

   private:
    net::steady_timer timer_;
    bool set_ = false;
  };

  // ---- bytes
  // Closes the socket, which ends whatever waits for it, unless cancelled in time.
  std::shared_ptr<net::steady_timer> close_after(Milliseconds time, std::atomic<int64_t>* counter = nullptr);
  net::awaitable<bool> shake_hands();
  net::awaitable<size_t> receive_some(net::mutable_buffer bytes, error_code& error);
  net::awaitable<size_t> send_some(net::const_buffer bytes, error_code& error);
  net::awaitable<void> read();
  // False when the client is gone or does not read.
  net::awaitable<bool> send(std::string bytes);
  net::awaitable<void> linger();

  // ---- requests
  net::awaitable<void> serve();
  // Reads one request. False when the connection is over.
  net::awaitable<bool> receive(Parser& parser);
  HttpResponse bad_request(Parser& parser, const error_code& error) const;
  // An answer after which nothing more is read.
  net::awaitable<void> refuse(HttpResponse response);
  // Runs the handler and sends what comes. False when the connection is over.
  net::awaitable<bool> answer(http::request<http::string_body> message);
  HttpRequest translate(http::request<http::string_body> message);
  void hand_over(HttpRequest request, std::shared_ptr<Exchange> exchange);
  void drop_slow_client();

  HttpShared& server_;
  tcp::socket socket_;
  std::optional<net::ssl::stream<tcp::socket&>> tls_;  // over socket_
  Strand strand_;
  Signal input_, room_, output_;
  std::string buffer_;  // received and not parsed
  size_t received_ = 0;
  std::shared_ptr<HttpAnswer> answer_;
  std::string peer_;
  bool crowded_ = false, ended_ = false, closed_ = false, draining_ = false, discard_input_ = false;
  bool keep_alive_ = true, http_1_0_ = false;
};

}  // namespace hadal::serve
