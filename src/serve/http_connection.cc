#include "serve/http_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <random>

#include "base/error.h"
#include "base/log.h"

namespace hadal::serve {
namespace {

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
  const auto hex = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
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

// Empty before the first line has come.
std::string path_of(http::request_parser<http::string_body>& parser) { return std::string(parser.get().target()); }

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::string_view status_text(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

net::awaitable<bool> HttpConnection::Signal::wait(Clock::time_point deadline) {
  if (!set_) {
    timer_.expires_at(deadline);
    error_code ignored;
    co_await timer_.async_wait(net::redirect_error(net::use_awaitable, ignored));
  }
  co_return std::exchange(set_, false);
}

HttpConnection::HttpConnection(HttpShared& server, tcp::socket socket, Strand strand)
    : server_(server),
      socket_(std::move(socket)),
      strand_(std::move(strand)),
      input_(strand_),
      room_(strand_),
      output_(strand_) {
  ++server_.counters.connections_total;
  crowded_ = ++server_.counters.connections > server_.options.max_connections;
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  // Bounds what the kernel holds for a client that does not read; by itself it would grow to megabytes.
  socket_.set_option(net::socket_base::send_buffer_size(kSendBuffer), ignored);
  const tcp::endpoint peer = socket_.remote_endpoint(ignored);
  peer_ = fmt::format("{}:{}", peer.address().to_string(ignored), peer.port());
}
HttpConnection::~HttpConnection() {
  {
    const std::lock_guard lock(server_.mutex);
    server_.connections.erase(this);
  }
  --server_.counters.connections;
}

void HttpConnection::drain() {
  draining_ = true;
  if (answer_ != nullptr) answer_->close_after();
  input_.set();
}
void HttpConnection::close() {
  closed_ = true;
  if (answer_ != nullptr) answer_->abort();
  error_code ignored;
  socket_.close(ignored);
  input_.set();
  room_.set();
  output_.set();
}

net::awaitable<void> HttpConnection::run() {
  const auto self = shared_from_this();
  if (server_.tls && !co_await shake_hands()) {
    close();
    co_return;
  }
  net::co_spawn(
      strand_, [self]() -> net::awaitable<void> { co_await self->read(); }, net::detached);
  try {
    co_await serve();
  } catch (const std::exception& error) { log::error("connection {}: {}", peer_, error.what()); }
  co_await linger();
  close();
}

std::shared_ptr<net::steady_timer> HttpConnection::close_after(Milliseconds time, std::atomic<int64_t>* counter) {
  auto timer = std::make_shared<net::steady_timer>(strand_, time);
  timer->async_wait([self = shared_from_this(), timer, counter](const error_code& error) {
    if (error || timer->expiry() > Clock::now()) return;
    if (counter != nullptr) ++*counter;
    error_code ignored;
    self->socket_.close(ignored);
  });
  return timer;
}

net::awaitable<bool> HttpConnection::shake_hands() {
  tls_.emplace(socket_, *server_.tls);
  const auto timer = close_after(server_.options.header_time);
  error_code error;
  co_await tls_->async_handshake(net::ssl::stream_base::server, net::redirect_error(net::use_awaitable, error));
  timer->expires_at(Clock::time_point::max());
  co_return !error;
}

net::awaitable<size_t> HttpConnection::receive_some(net::mutable_buffer bytes, error_code& error) {
  if (tls_) co_return co_await tls_->async_read_some(bytes, net::redirect_error(net::use_awaitable, error));
  co_return co_await socket_.async_read_some(bytes, net::redirect_error(net::use_awaitable, error));
}
net::awaitable<size_t> HttpConnection::send_some(net::const_buffer bytes, error_code& error) {
  if (tls_) co_return co_await tls_->async_write_some(bytes, net::redirect_error(net::use_awaitable, error));
  co_return co_await socket_.async_write_some(bytes, net::redirect_error(net::use_awaitable, error));
}

net::awaitable<void> HttpConnection::read() {
  std::array<char, kReadPiece> piece;
  while (!closed_) {
    // While an answer is under way a client may send its next request, up to a point.
    if (answer_ != nullptr && buffer_.size() >= kReadAhead) {
      co_await room_.wait(Clock::time_point::max());
      continue;
    }
    error_code error;
    const size_t n = co_await receive_some(net::buffer(piece), error);
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

net::awaitable<void> HttpConnection::serve() {
  if (crowded_) {
    ++server_.counters.refused;
    HttpResponse r =
        server_.error_body(503, fmt::format("the server has its {} connections", server_.options.max_connections), "");
    r.headers.emplace_back("Retry-After", "1");
    co_await refuse(std::move(r));
    co_return;
  }
  while (!ended_ && !closed_) {
    Parser parser;
    parser.eager(true);
    parser.header_limit(static_cast<uint32_t>(server_.options.max_header_bytes));
    parser.body_limit(server_.options.max_body_bytes);
    if (!co_await receive(parser)) co_return;
    if (!co_await answer(parser.release())) co_return;
  }
}

net::awaitable<bool> HttpConnection::receive(Parser& parser) {
  const HttpServerOptions& o = server_.options;
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
        if (!co_await send("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
      }
    }
    if (header_done && received_ - counted >= kBodyRate) {
      deadline = std::max(deadline, Clock::now()) + std::chrono::seconds((received_ - counted) / kBodyRate);
      deadline = std::min(deadline, Clock::now() + o.body_time);
      counted = received_;
    }
    if (!co_await input_.wait(deadline) && Clock::now() >= deadline) {
      if (begun)
        co_await refuse(server_.error_body(
            408, fmt::format("the request's {} did not arrive in time", header_done ? "body" : "header"),
            path_of(parser)));
      co_return false;
    }
  }
}

HttpResponse HttpConnection::bad_request(Parser& parser, const error_code& error) const {
  const HttpServerOptions& o = server_.options;
  if (error == http::error::header_limit)
    return server_.error_body(431, fmt::format("the header is larger than {} bytes", o.max_header_bytes), "");
  if (error == http::error::body_limit)
    return server_.error_body(413, fmt::format("the body is larger than {} bytes", o.max_body_bytes), path_of(parser));
  return server_.error_body(400, "this is not HTTP/1.1: " + error.message(), path_of(parser));
}

net::awaitable<void> HttpConnection::refuse(HttpResponse response) {
  std::string bytes =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n", response.status,
                  status_text(response.status), response.content_type, response.body.size());
  for (const auto& [name, value] : response.headers) bytes += fmt::format("{}: {}\r\n", name, value);
  bytes += "\r\n" + response.body;
  co_await send(std::move(bytes));
}

net::awaitable<bool> HttpConnection::answer(http::request<http::string_body> message) {
  HttpRequest request = translate(std::move(message));
  const bool keep = keep_alive_ && !draining_;
  answer_ = std::make_shared<HttpAnswer>(
      strand_,
      HttpAnswer::Head{keep, http_1_0_, request.method == "HEAD", request.request_id, server_.options.max_unsent_bytes},
      [this] {
        if (answer_ != nullptr && answer_->too_slow()) drop_slow_client();
        output_.set();
      },
      server_.counters);
  const std::shared_ptr<HttpAnswer> current = answer_;
  if (ended_) current->abort();
  hand_over(std::move(request), std::make_shared<HttpHandle>(current));

  bool good = true, sent_anything = false;
  for (;;) {
    std::string out = current->take_output();
    if (!out.empty()) {
      sent_anything = true;
      if (!co_await send(std::move(out))) {
        good = false;
        break;
      }
      continue;
    }
    if (current->is_complete() || current->is_aborted()) break;
    co_await output_.wait(Clock::time_point::max());
  }
  good = good && current->is_complete() && current->keep_alive() && !ended_;
  if (!good) current->abort();
  // The handle went without an answer: the client is told, if it is still there.
  if (current->is_aborted() && !sent_anything && !ended_ && !closed_)
    co_await refuse(server_.error_body(500, "the request was dropped by the server", ""));
  current->disconnect();
  answer_ = nullptr;
  room_.set();
  co_return good;
}

// At once: the coroutine that sends to it may wait for long.
void HttpConnection::drop_slow_client() {
  ++server_.counters.slow;
  log::warn("connection {}: dropped, it did not read {} bytes of its stream", peer_, server_.options.max_unsent_bytes);
  error_code ignored;
  socket_.close(ignored);
}

HttpRequest HttpConnection::translate(http::request<http::string_body> message) {
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

void HttpConnection::hand_over(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  net::post(
      server_.workers, [&server = server_, request = std::move(request), exchange = std::move(exchange)]() mutable {
        const std::string path = request.path, id = request.request_id;
        try {
          server.handler(std::move(request), exchange);
        } catch (const std::exception& error) {
          log::error("request {} to {}: {}", id, path, error.what());
          exchange->respond(
              server.error_body(500, "internal error; the server's log has the details under this request's id", path));
        }
      });
}

net::awaitable<bool> HttpConnection::send(std::string bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const auto timer = close_after(server_.options.write_time, &server_.counters.slow);
    error_code error;
    sent += co_await send_some(net::buffer(bytes.data() + sent, bytes.size() - sent), error);
    timer->expires_at(Clock::time_point::max());
    if (error) co_return false;
  }
  co_return true;
}

// Closing with unread input would reset the connection, and the client might lose the end of its answer.
net::awaitable<void> HttpConnection::linger() {
  if (ended_ || closed_) co_return;
  discard_input_ = true;
  buffer_.clear();
  room_.set();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  const Clock::time_point deadline = Clock::now() + Milliseconds(server_.draining ? 100 : 2000);
  while (!ended_ && !closed_ && Clock::now() < deadline) co_await input_.wait(deadline);
}

}  // namespace hadal::serve
