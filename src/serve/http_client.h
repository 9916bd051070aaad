// A small blocking HTTP/1.1 client: for the load generator and for tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace hadal::serve {

class HttpClient {
 public:
  // Connects. Throws Error(io). `timeout_seconds`: most time that one read or write may take. `receive_buffer`: the kernel's, 0 as it
  // likes.
  HttpClient(std::string host, int port, double timeout_seconds = 60, int receive_buffer = 0);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  struct Answer {
    int status = 0;
    HttpHeaders headers;  // names in lower case
    std::string body;     // of a whole answer
    std::string_view header(std::string_view name) const;
  };
  // Sends a request and reads the whole answer. The connection is used again.
  Answer request(std::string_view method, std::string_view path, std::string_view body = {},
                 const HttpHeaders& headers = {});

  // Sends a request and reads the head; the body then comes by next_event(), or by read_rest().
  Answer open(std::string_view method, std::string_view path, std::string_view body = {},
              const HttpHeaders& headers = {});
  // The next server-sent event: its name (may be empty) and data. nullopt at the end of the answer.
  struct Event {
    std::string name, data;
  };
  std::optional<Event> next_event();
  std::string read_rest();

  void send(std::string_view bytes);  // as they are
  Answer read_head();
  // False when the other side has closed the connection.
  bool connected();
  void close();  // without a goodbye
  void shut_down_sending();

 private:
  bool fill();  // reads more; false at the end of the connection
  bool more_body();
  std::string line();

  int socket_ = -1;
  std::string host_, in_;  // received and not used
  std::string body_;       // of the current answer, without chunk marks, not used
  bool chunked_ = false, ended_ = true, until_close_ = false;
  size_t left_ = 0;  // of a body of known length
};

}  // namespace hadal::serve
