// HTTP as the protocols see it: a request, and a handle through which it is answered. The server itself is http_server.cc;
// nothing else knows which library carries the bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hadal::serve {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // GET, POST, ...
  std::string path;     // without the query, percent-decoded
  std::string query;    // behind '?', as it came
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string peer;        // address:port
  std::string request_id;  // x-request-id of the client when it is printable and short, otherwise made here

  // The first header of that name (lower case); empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers;
};

// One request that waits for its answer: either respond(), or begin_stream(), write() any number of times, and end(). When
// the last reference goes before the answer is complete, the connection is closed. All calls are thread-safe and never
// block; what they do happens on the connection's own strand, in the order of the calls.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Runs `f` on the strand. Work that belongs to one request needs no locks when all of it goes through here.
  virtual void post(std::function<void()> f) = 0;

  virtual void respond(HttpResponse response) = 0;
  virtual void begin_stream(HttpResponse head) = 0;  // status, type and headers; the body is ignored
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;

  // `f` runs once on the strand if the client goes, or is dropped for reading too slowly, before the answer is complete;
  // at once when that has happened. It is forgotten when the answer is complete.
  virtual void on_abort(std::function<void()> f) = 0;
};

// Called on a worker thread: it may compute (parse, tokenise), but must not wait. Whatever it throws becomes a bare 500.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // a numeric address, or localhost
  int port = 8000;                 // 0: any free port
  int io_threads = 1;
  int worker_threads = 2;
  int max_connections = 16384;  // more are answered with 503 and closed
  size_t max_header_bytes = 64 << 10;
  size_t max_body_bytes = 64 << 20;
  size_t max_unsent_bytes = 4 << 20;              // of a stream whose client reads too slowly; then it is dropped
  std::chrono::milliseconds header_time{15'000};  // from the first byte of a request to the end of its header
  std::chrono::milliseconds body_time{60'000};    // for the body, and more while at least 64 KiB a second arrive
  std::chrono::milliseconds idle_time{120'000};   // between requests
  std::chrono::milliseconds write_time{60'000};   // without progress of a write
  std::string certificate_file, key_file;         // PEM; both empty: no TLS
};

struct HttpServerStats {
  int64_t connections = 0;  // open now
  int64_t exchanges = 0;    // requests without a complete answer
  int64_t connections_total = 0;
  int64_t refused_connections = 0;   // over max_connections
  int64_t slow_clients_dropped = 0;  // over max_unsent_bytes or write_time
  int64_t aborted_exchanges = 0;     // the client went before the answer was complete
};

class HttpServer {
 public:
  // The body of the answer to a request that cannot be read as HTTP, and to one that the handler failed on.
  using ErrorBody = std::function<HttpResponse(int status, const std::string& message, std::string_view path)>;

  // Listens. Throws Error: io when the address cannot be had, invalid_argument when it is no address.
  HttpServer(HttpServerOptions options, HttpHandler handler, ErrorBody error_body);
  // Drops what is left.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

  // No new connections; connections end after the answer that they are at. True when all answers were complete in time.
  bool drain(std::chrono::milliseconds time);
  // Closes all connections, with on_abort for what was not answered, and joins all threads. No handler runs afterwards.
  void stop();

  HttpServerStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The reason phrase of a status.
std::string_view status_text(int status);

// Raises the soft limit on file descriptors to the hard one; returns what it is then.
int64_t raise_descriptor_limit();

}  // namespace hadal::serve
