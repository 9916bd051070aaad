// The output side of one HTTP request; only for the files of the server.
#pragma once

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <optional>

#include "base/error.h"
#include "serve/http.h"

namespace hadal::serve {

namespace net = boost::asio;
using Strand = net::strand<net::io_context::executor_type>;

struct HttpCounters {
  std::atomic<int64_t> connections{0}, exchanges{0}, connections_total{0}, refused{0}, slow{0}, aborted{0};
};

// The output side of one request. Lives on the connection's strand; the connection takes bytes out and sends them.
class HttpAnswer final : public Exchange, public std::enable_shared_from_this<HttpAnswer> {
 public:
  struct Head {
    bool keep_alive, http_1_0, head_only;
    std::string request_id;
    size_t max_unsent;
  };

  // `wake` tells the connection that there is something to send; called on the strand while the connection lives.
  HttpAnswer(Strand strand, Head head, std::function<void()> wake, HttpCounters& counters)
      : strand_(std::move(strand)), head_(std::move(head)), wake_(std::move(wake)), counters_(counters) {
    ++counters_.exchanges;
  }
  ~HttpAnswer() override { --counters_.exchanges; }

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
  void disconnect() {
    wake_ = [] {};
  }
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
    const bool empty = r.status == 204 || r.status == 304;
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
  HttpCounters& counters_;
  State state_ = State::waiting;
  bool too_slow_ = false;
  std::string out_;
  std::function<void()> on_abort_;
};

// What the handler holds. When the last of these goes, nobody can complete the answer any more.
class HttpHandle final : public Exchange {
 public:
  explicit HttpHandle(std::shared_ptr<HttpAnswer> answer) : answer_(std::move(answer)) {}
  ~HttpHandle() override {
    answer_->post([a = answer_] { a->abort(); });
  }
  void post(std::function<void()> f) override { answer_->post(std::move(f)); }
  void respond(HttpResponse r) override { answer_->respond(std::move(r)); }
  void begin_stream(HttpResponse h) override { answer_->begin_stream(std::move(h)); }
  void write(std::string b) override { answer_->write(std::move(b)); }
  void end() override { answer_->end(); }
  void on_abort(std::function<void()> f) override { answer_->on_abort(std::move(f)); }

 private:
  std::shared_ptr<HttpAnswer> answer_;
};

}  // namespace hadal::serve
