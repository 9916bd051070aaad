// The HTTP/1.1 server: Asio for sockets, Beast's parser for requests. All of Boost's networking is in this file.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "serve/http.h"

namespace hadal::serve {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using net::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Strand = net::strand<net::io_context::executor_type>;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t kReadPiece = 4 << 10;  // part of every connection's memory
constexpr int kSendBuffer = 256 << 10;
constexpr size_t kReadAhead = 64 << 10;  // of a next request while one is being answered
constexpr size_t kBodyRate = 64 << 10;   // bytes a second that earn a body more time

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

std::string percent_decoded(std::string_view text) {
  const auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string new_request_id() {
  static std::atomic<uint64_t> counter{std::random_device{}() * uint64_t{0x9e3779b97f4a7c15}};
  uint64_t x = counter.fetch_add(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return fmt::format("{:016x}", x ^ (x >> 31));
}

// Goes into logs and headers, so it must be harmless there.
bool usable_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 32 && c < 127 && c != '"' && c != '\\'; });
}

// Wakes a coroutine of the same strand. A signal that comes before the wait is not lost.
class Signal {
 public:
  explicit Signal(const Strand& strand) : timer_(strand) {}
  void set() {
    set_ = true;
    timer_.cancel();
  }
  // False when `deadline` came first.
  net::awaitable<bool> wait(Clock::time_point deadline) {
    if (!set_) {
      timer_.expires_at(deadline);
      error_code ignored;
      co_await timer_.async_wait(net::redirect_error(net::use_awaitable, ignored));
    }
    co_return std::exchange(set_, false);
  }

 private:
  net::steady_timer timer_;
  bool set_ = false;
};

struct Counters {
  std::atomic<int64_t> connections{0}, exchanges{0}, connections_total{0}, refused{0}, slow{0}, aborted{0};
};

// The output side of one request. Lives on the connection's strand; the connection takes bytes out and sends them.
class Answer final : public Exchange, public std::enable_shared_from_this<Answer> {
 public:
  struct Head {
    bool keep_alive, http_1_0, head_only;
    std::string request_id;
    size_t max_unsent;
  };

  // `wake` tells the connection that there is something to send; called on the strand while the connection lives.
  Answer(Strand strand, Head head, std::function<void()> wake, Counters& counters)
      : strand_(std::move(strand)), head_(std::move(head)), wake_(std::move(wake)), counters_(counters) {
    ++counters_.exchanges;
  }
  ~Answer() override { --counters_.exchanges; }

  void post(std::function<void()> f) override { net::post(strand_, std::move(f)); }

  void respond(HttpResponse response) override {
    run([self = shared_from_this(), r = std::move(response)] {
      if (self->state_ != State::waiting) return;
      self->out_ += self->header(r, r.body.size());
      if (!self->head_.head_only) self->out_ += r.body;
      self->complete();
    });
  }

  void begin_stream(HttpResponse head) override {
    run([self = shared_from_this(), h = std::move(head)] {
      if (self->state_ != State::waiting) return;
      self->state_ = State::streaming;
      // HTTP/1.0 has no chunks: the end of the connection is the end of the stream.
      if (self->head_.http_1_0) self->head_.keep_alive = false;
      self->out_ += self->header(h, std::nullopt);
      self->wake_();
    });
  }

  void write(std::string bytes) override {
    if (bytes.empty()) return;
    run([self = shared_from_this(), b = std::move(bytes)] {
      if (self->state_ != State::streaming || self->head_.head_only) return;
      if (self->out_.size() + b.size() > self->head_.max_unsent) {
        self->too_slow_ = true;
        self->abort();
        return;
      }
      if (self->head_.http_1_0) {
        self->out_ += b;
      } else {
        fmt::format_to(std::back_inserter(self->out_), "{:x}\r\n", b.size());
        self->out_ += b;
        self->out_ += "\r\n";
      }
      self->wake_();
    });
  }

  void end() override {
    run([self = shared_from_this()] {
      if (self->state_ != State::streaming) return;
      if (!self->head_.http_1_0 && !self->head_.head_only) self->out_ += "0\r\n\r\n";
      self->complete();
    });
  }

  void on_abort(std::function<void()> f) override {
    run([self = shared_from_this(), f = std::move(f)] {
      if (self->state_ == State::aborted) return f();
      if (self->state_ != State::complete) self->on_abort_ = f;
    });
  }

  // For the connection, on the strand.
  void abort() {
    if (state_ == State::complete || state_ == State::aborted) return;
    state_ = State::aborted;
    ++counters_.aborted;
    if (const auto f = std::exchange(on_abort_, nullptr)) f();
    wake_();
  }
  void disconnect() { wake_ = [] {}; }
  bool is_complete() const { return state_ == State::complete; }
  bool is_aborted() const { return state_ == State::aborted; }
  bool is_waiting() const { return state_ == State::waiting; }
  bool too_slow() const { return too_slow_; }
  bool keep_alive() const { return head_.keep_alive; }
  void close_after() { head_.keep_alive = false; }
  std::string take_output() { return std::exchange(out_, {}); }

 private:
  enum class State { waiting, streaming, complete, aborted };

  template <typename F>
  void run(F f) {
    net::dispatch(strand_, std::move(f));
  }

  std::string header(const HttpResponse& r, std::optional<size_t> length) const {
    std::string out = fmt::format("HTTP/1.1 {} {}\r\n", r.status, status_text(r.status));
    const bool empty = r.status == 204;
    if (!empty) out += fmt::format("Content-Type: {}\r\n", r.content_type);
    for (const auto& [name, value] : r.headers) out += fmt::format("{}: {}\r\n", name, value);
    out += fmt::format("X-Request-Id: {}\r\n", head_.request_id);
    if (length && !empty) out += fmt::format("Content-Length: {}\r\n", *length);
    if (!length && !head_.http_1_0) out += "Transfer-Encoding: chunked\r\n";
    out += head_.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return out;
  }

  void complete() {
    state_ = State::complete;
    on_abort_ = nullptr;
    wake_();
  }

  Strand strand_;
  Head head_;
  std::function<void()> wake_;
  Counters& counters_;
  State state_ = State::waiting;
  bool too_slow_ = false;
  std::string out_;
  std::function<void()> on_abort_;
};

// What the handler holds. When the last of these goes, nobody can complete the answer any more.
class Handle final : public Exchange {
 public:
  explicit Handle(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~Handle() override {
    answer_->post([a = answer_] { a->abort(); });
  }
  void post(std::function<void()> f) override { answer_->post(std::move(f)); }
  void respond(HttpResponse r) override { answer_->respond(std::move(r)); }
  void begin_stream(HttpResponse h) override { answer_->begin_stream(std::move(h)); }
  void write(std::string b) override { answer_->write(std::move(b)); }
  void end() override { answer_->end(); }
  void on_abort(std::function<void()> f) override { answer_->on_abort(std::move(f)); }

 private:
  std::shared_ptr<Answer> answer_;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, HttpHandler handler, ErrorBody error_body)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        error_body_(std::move(error_body)),
        io_(options_.io_threads),
        acceptor_(io_),
        accept_strand_(net::make_strand(io_)),
        workers_(static_cast<size_t>(options_.worker_threads)) {
    listen();
    net::co_spawn(accept_strand_, accept(), net::detached);
    for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { io_.run(); });
  }

  ~Impl() { stop(); }

  int port() const { return port_; }

  bool drain(Milliseconds time) {
    draining_ = true;
    net::post(accept_strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    for_each_connection([](Connection& c) { c.drain(); });
    const Clock::time_point deadline = Clock::now() + time;
    while (counters_.exchanges > 0 && Clock::now() < deadline) std::this_thread::sleep_for(Milliseconds(5));
    return counters_.exchanges == 0;
  }

  void stop() {
    if (std::exchange(stopped_, true)) return;
    draining_ = true;
    net::post(accept_strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    // Handlers first: each may still open an exchange on a connection that is about to close.
    workers_.join();
    // A connection that was being accepted shows up late, so ask until there is none.
    while (counters_.connections > 0) {
      for_each_connection([](Connection& c) { c.close(); });
      std::this_thread::sleep_for(Milliseconds(1));
    }
    io_.stop();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

  HttpServerStats stats() const {
    return {counters_.connections, counters_.exchanges, counters_.connections_total, counters_.refused, counters_.slow,
            counters_.aborted};
  }

 private:
  class Connection;

  void listen() {
    error_code error;
    const net::ip::address address = options_.host == "localhost" ? net::ip::address_v4::loopback()
                                                                  : net::ip::make_address(options_.host, error);
    if (error) fail(ErrorKind::invalid_argument, "--host {} is no numeric address", options_.host);
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error)
      fail(ErrorKind::io, "cannot listen on {}:{}: {}; --port 0 takes any free port", options_.host, options_.port, error.message());
    port_ = acceptor_.local_endpoint().port();
  }

  net::awaitable<void> accept() {
    while (!draining_) {
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
      auto connection = std::make_shared<Connection>(*this, std::move(socket), strand);
      {
        const std::lock_guard lock(mutex_);
        connections_.insert(connection.get());
      }
      net::co_spawn(strand, [connection]() -> net::awaitable<void> { co_await connection->run(); }, net::detached);
    }
  }

  template <typename F>
  void for_each_connection(F f) {
    std::vector<std::shared_ptr<Connection>> all;
    {
      const std::lock_guard lock(mutex_);
      for (Connection* c : connections_)
        if (auto shared = c->weak_from_this().lock()) all.push_back(std::move(shared));
    }
    for (const auto& c : all) net::post(c->strand(), [c, f] { f(*c); });
  }

  void forget(Connection* connection) {
    const std::lock_guard lock(mutex_);
    connections_.erase(connection);
  }

  // A connection has two coroutines on one strand: one reads bytes into the buffer as long as there is room, so that the
  // end of the client is seen whatever else goes on; the other parses requests and sends answers.
  class Connection : public std::enable_shared_from_this<Connection> {
   public:
    Connection(Impl& server, tcp::socket socket, Strand strand)
        : server_(server), socket_(std::move(socket)), strand_(std::move(strand)), input_(strand_), room_(strand_), output_(strand_) {
      ++server_.counters_.connections_total;
      crowded_ = ++server_.counters_.connections > server_.options_.max_connections;
      error_code ignored;
      socket_.set_option(tcp::no_delay(true), ignored);
      // Bounds what the kernel holds for a client that does not read; by itself it would grow to megabytes.
      socket_.set_option(net::socket_base::send_buffer_size(kSendBuffer), ignored);
      const tcp::endpoint peer = socket_.remote_endpoint(ignored);
      peer_ = fmt::format("{}:{}", peer.address().to_string(ignored), peer.port());
    }
    ~Connection() {
      server_.forget(this);
      --server_.counters_.connections;
    }

    const Strand& strand() const { return strand_; }

    // On the strand.
    void drain() {
      draining_ = true;
      if (answer_ != nullptr) answer_->close_after();
      input_.set();
    }
    void close() {
      closed_ = true;
      if (answer_ != nullptr) answer_->abort();
      error_code ignored;
      socket_.close(ignored);
      input_.set();
      room_.set();
      output_.set();
    }

    net::awaitable<void> run() {
      const auto self = shared_from_this();
      net::co_spawn(strand_, [self]() -> net::awaitable<void> { co_await self->read(); }, net::detached);
      try {
        co_await serve();
      } catch (const std::exception& error) { log::error("connection {}: {}", peer_, error.what()); }
      co_await linger();
      close();
    }

   private:
    using Parser = http::request_parser<http::string_body>;

    net::awaitable<void> read() {
      std::array<char, kReadPiece> piece;
      while (!closed_) {
        // While an answer is under way a client may send its next request, up to a point.
        if (answer_ != nullptr && buffer_.size() >= kReadAhead) {
          co_await room_.wait(Clock::time_point::max());
          continue;
        }
        error_code error;
        const size_t n = co_await socket_.async_read_some(net::buffer(piece), net::redirect_error(net::use_awaitable, error));
        if (error) break;
        if (!discard_input_) buffer_.append(piece.data(), n);
        received_ += n;
        input_.set();
      }
      ended_ = true;
      if (answer_ != nullptr) answer_->abort();
      input_.set();
      output_.set();
    }

    net::awaitable<void> serve() {
      if (crowded_) {
        ++server_.counters_.refused;
        HttpResponse r = server_.error_body_(503, fmt::format("the server has its {} connections", server_.options_.max_connections), "");
        r.headers.emplace_back("Retry-After", "1");
        co_await refuse(std::move(r));
        co_return;
      }
      while (!ended_ && !closed_) {
        Parser parser;
        parser.eager(true);
        parser.header_limit(static_cast<uint32_t>(server_.options_.max_header_bytes));
        parser.body_limit(server_.options_.max_body_bytes);
        if (!co_await receive(parser)) co_return;
        if (!co_await answer(parser.release())) co_return;
      }
    }

    // Reads one request. False when the connection is over.
    net::awaitable<bool> receive(Parser& parser) {
      const HttpServerOptions& o = server_.options_;
      Clock::time_point deadline = Clock::now() + o.idle_time;
      bool begun = false, header_done = false;
      size_t counted = 0;
      for (;;) {
        error_code error;
        while (!buffer_.empty() && !parser.is_done()) {
          const size_t used = parser.put(net::buffer(buffer_), error);
          buffer_.erase(0, used);
          if (error || used == 0) break;
        }
        if (parser.is_done()) co_return true;
        if (error && error != http::error::need_more) {
          co_await refuse(bad_request(parser, error));
          co_return false;
        }
        if (ended_ || closed_ || (draining_ && !begun && buffer_.empty())) co_return false;
        if (!begun && !buffer_.empty()) {
          begun = true;
          deadline = Clock::now() + o.header_time;
        }
        if (!header_done && parser.is_header_done()) {
          begun = header_done = true;
          deadline = Clock::now() + o.body_time;
          counted = received_;
          if (parser.get()[http::field::expect] == "100-continue") {
            const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
            co_await net::async_write(socket_, net::buffer(go), net::redirect_error(net::use_awaitable, error));
            if (error) co_return false;
          }
        }
        if (header_done && received_ - counted >= kBodyRate) {
          deadline = std::max(deadline, Clock::now()) + std::chrono::seconds((received_ - counted) / kBodyRate);
          deadline = std::min(deadline, Clock::now() + o.body_time);
          counted = received_;
        }
        if (!co_await input_.wait(deadline) && Clock::now() >= deadline) {
          if (begun)
            co_await refuse(server_.error_body_(408, fmt::format("the request's {} did not arrive in time", header_done ? "body" : "header"),
                                                path_of(parser)));
          co_return false;
        }
      }
    }

    static std::string path_of(Parser& parser) {
      return parser.is_header_done() ? std::string(parser.get().target()) : std::string();
    }

    HttpResponse bad_request(Parser& parser, const error_code& error) const {
      const HttpServerOptions& o = server_.options_;
      if (error == http::error::header_limit)
        return server_.error_body_(431, fmt::format("the header is larger than {} bytes", o.max_header_bytes), "");
      if (error == http::error::body_limit)
        return server_.error_body_(413, fmt::format("the body is larger than {} bytes", o.max_body_bytes), path_of(parser));
      return server_.error_body_(400, "this is not HTTP/1.1: " + error.message(), path_of(parser));
    }

    // An answer after which nothing more is read.
    net::awaitable<void> refuse(HttpResponse response) {
      std::string bytes = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n", response.status,
                                      status_text(response.status), response.content_type, response.body.size());
      for (const auto& [name, value] : response.headers) bytes += fmt::format("{}: {}\r\n", name, value);
      bytes += "\r\n" + response.body;
      co_await send(bytes);
    }

    // Runs the handler and sends what comes. False when the connection is over.
    net::awaitable<bool> answer(http::request<http::string_body> message) {
      HttpRequest request = translate(std::move(message));
      const bool keep = keep_alive_ && !draining_;
      answer_ = std::make_shared<Answer>(
          strand_, Answer::Head{keep, http_1_0_, request.method == "HEAD", request.request_id, server_.options_.max_unsent_bytes},
          [this] { output_.set(); }, server_.counters_);
      const std::shared_ptr<Answer> current = answer_;
      if (ended_) current->abort();
      hand_over(std::move(request), std::make_shared<Handle>(current));

      bool good = true, sent_anything = false;
      for (;;) {
        std::string out = current->take_output();
        if (!out.empty()) {
          sent_anything = true;
          if (!co_await send(out)) {
            good = false;
            break;
          }
          continue;
        }
        if (current->is_complete() || current->is_aborted()) break;
        co_await output_.wait(Clock::time_point::max());
      }
      if (current->too_slow()) {
        ++server_.counters_.slow;
        log::warn("connection {}: dropped, it did not read {} bytes of its stream", peer_, server_.options_.max_unsent_bytes);
      }
      good = good && current->is_complete() && current->keep_alive() && !ended_;
      if (!good) current->abort();
      // The handle went without an answer: the client is told, if it is still there.
      if (current->is_aborted() && !sent_anything && !ended_ && !closed_)
        co_await refuse(server_.error_body_(500, "the request was dropped by the server", ""));
      current->disconnect();
      answer_ = nullptr;
      room_.set();
      co_return good;
    }

    HttpRequest translate(http::request<http::string_body> message) {
      HttpRequest r;
      r.method = std::string(message.method_string());
      const std::string_view target(message.target().data(), message.target().size());
      const size_t mark = std::min(target.find('?'), target.size());
      r.path = percent_decoded(target.substr(0, mark));
      if (mark < target.size()) r.query = std::string(target.substr(mark + 1));
      for (const auto& field : message) {
        const auto name = field.name_string(), value = field.value();
        r.headers.emplace_back(lower({name.data(), name.size()}), std::string(value.data(), value.size()));
      }
      keep_alive_ = message.keep_alive();
      http_1_0_ = message.version() < 11;
      r.body = std::move(message.body());
      r.peer = peer_;
      const std::string_view id = r.header("x-request-id");
      r.request_id = usable_id(id) ? std::string(id) : new_request_id();
      return r;
    }

    void hand_over(HttpRequest request, std::shared_ptr<Exchange> exchange) {
      net::post(server_.workers_, [&server = server_, request = std::move(request), exchange = std::move(exchange)]() mutable {
        const std::string path = request.path, id = request.request_id;
        try {
          server.handler_(std::move(request), exchange);
        } catch (const std::exception& error) {
          log::error("request {} to {}: {}", id, path, error.what());
          exchange->respond(server.error_body_(500, "internal error; the server's log has the details under this request's id", path));
        }
      });
    }

    // False when the client is gone or does not read.
    net::awaitable<bool> send(const std::string& bytes) {
      const auto done = std::make_shared<bool>(false);
      auto timer = std::make_shared<net::steady_timer>(strand_);
      size_t sent = 0;
      bool ok = true;
      while (sent < bytes.size()) {
        timer->expires_after(server_.options_.write_time);
        timer->async_wait([self = shared_from_this(), done](const error_code& error) {
          if (error || *done) return;
          ++self->server_.counters_.slow;
          error_code ignored;
          self->socket_.close(ignored);
        });
        error_code error;
        sent += co_await socket_.async_write_some(net::buffer(bytes.data() + sent, bytes.size() - sent),
                                                  net::redirect_error(net::use_awaitable, error));
        if (error) {
          ok = false;
          break;
        }
      }
      *done = true;
      timer->cancel();
      co_return ok;
    }

    // Closing with unread input would reset the connection, and the client might lose the end of its answer.
    net::awaitable<void> linger() {
      if (ended_ || closed_) co_return;
      discard_input_ = true;
      buffer_.clear();
      room_.set();
      error_code ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      const Clock::time_point deadline = Clock::now() + Milliseconds(server_.draining_ ? 100 : 2000);
      while (!ended_ && !closed_ && Clock::now() < deadline) co_await input_.wait(deadline);
    }

    Impl& server_;
    tcp::socket socket_;
    Strand strand_;
    Signal input_, room_, output_;
    std::string buffer_;  // received and not parsed
    size_t received_ = 0;
    std::shared_ptr<Answer> answer_;
    std::string peer_;
    bool crowded_ = false, ended_ = false, closed_ = false, draining_ = false, discard_input_ = false;
    bool keep_alive_ = true, http_1_0_ = false;
  };

  const HttpServerOptions options_;
  const HttpHandler handler_;
  const ErrorBody error_body_;
  Counters counters_;
  net::io_context io_;
  tcp::acceptor acceptor_;
  Strand accept_strand_;
  net::thread_pool workers_;
  std::vector<std::thread> threads_;
  int port_ = 0;
  std::atomic<bool> draining_{false};
  bool stopped_ = false;
  std::mutex mutex_;
  std::unordered_set<Connection*> connections_;
};

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler, ErrorBody error_body)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(error_body))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
bool HttpServer::drain(std::chrono::milliseconds time) { return impl_->drain(time); }
void HttpServer::stop() { impl_->stop(); }
HttpServerStats HttpServer::stats() const { return impl_->stats(); }

std::string_view status_text(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

int64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace hadal::serve
