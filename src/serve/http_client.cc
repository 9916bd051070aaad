#include "serve/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "base/error.h"

namespace hadal::serve {

HttpClient::HttpClient(std::string host, int port, double timeout_seconds, int receive_buffer)
    : host_(host == "localhost" ? "127.0.0.1" : std::move(host)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, host_.c_str(), &address.sin_addr) != 1)
    fail(ErrorKind::invalid_argument, "{} is no IPv4 address", host_);
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) fail(ErrorKind::io, "cannot make a socket: {}", std::generic_category().message(errno));
  timeval time{};
  time.tv_sec = static_cast<time_t>(timeout_seconds);
  time.tv_usec = static_cast<suseconds_t>((timeout_seconds - static_cast<double>(time.tv_sec)) * 1e6);
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int why = errno;
    ::close(socket_);
    fail(ErrorKind::io, "cannot connect to {}:{}: {}", host_, port, std::generic_category().message(why));
  }
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void HttpClient::shut_down_sending() { ::shutdown(socket_, SHUT_WR); }

bool HttpClient::connected() {
  pollfd p{socket_, POLLIN, 0};
  if (::poll(&p, 1, 0) == 0) return true;
  char byte = 0;
  return ::recv(socket_, &byte, 1, MSG_PEEK) > 0;
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::io, "cannot send: {}", std::generic_category().message(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

bool HttpClient::fill() {
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t n = ::recv(socket_, piece.data(), piece.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(ErrorKind::io, "cannot receive: {}",
           errno == EAGAIN ? std::string("timed out") : std::generic_category().message(errno));
    in_.append(piece.data(), static_cast<size_t>(n));
    return n > 0;
  }
}

std::string HttpClient::line() {
  size_t end;
  while ((end = in_.find("\r\n")) == std::string::npos)
    if (!fill()) fail(ErrorKind::io, "the server closed the connection");
  std::string text = in_.substr(0, end);
  in_.erase(0, end + 2);
  return text;
}

std::string_view HttpClient::Answer::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

HttpClient::Answer HttpClient::read_head() {
  Answer answer;
  const std::string status = line();
  if (!status.starts_with("HTTP/1.1 ") || status.size() < 12) fail(ErrorKind::io, "not an HTTP answer: {}", status);
  std::from_chars(status.data() + 9, status.data() + 12, answer.status);
  for (std::string text = line(); !text.empty(); text = line()) {
    const size_t colon = std::min(text.find(':'), text.size());
    std::string name = text.substr(0, colon);
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    const size_t begin = std::min(text.find_first_not_of(' ', colon + 1), text.size());
    answer.headers.emplace_back(std::move(name), text.substr(begin));
  }
  body_.clear();
  chunked_ = answer.header("transfer-encoding") == "chunked";
  const std::string_view length = answer.header("content-length");
  left_ = 0;
  std::from_chars(length.data(), length.data() + length.size(), left_);
  until_close_ = !chunked_ && length.empty() && answer.status != 204 && answer.status >= 200;
  ended_ = !chunked_ && !until_close_ && left_ == 0;
  return answer;
}

bool HttpClient::more_body() {
  if (ended_) return false;
  if (chunked_) {
    size_t size = 0;
    const std::string head = line();
    if (std::from_chars(head.data(), head.data() + head.size(), size, 16).ec != std::errc())
      fail(ErrorKind::io, "a bad chunk: {}", head);
    while (in_.size() < size + 2)
      if (!fill()) fail(ErrorKind::io, "the server closed the connection inside an answer");
    body_.append(in_, 0, size);
    in_.erase(0, size + 2);
    ended_ = size == 0;
    return !ended_;
  }
  if (in_.empty() && !fill()) {
    if (!until_close_) fail(ErrorKind::io, "the server closed the connection inside an answer");
    ended_ = true;
    return false;
  }
  const size_t take = until_close_ ? in_.size() : std::min(left_, in_.size());
  body_.append(in_, 0, take);
  in_.erase(0, take);
  if (!until_close_) left_ -= take;
  ended_ = !until_close_ && left_ == 0;
  return true;
}

std::string HttpClient::read_rest() {
  while (more_body()) {}
  return std::exchange(body_, {});
}

HttpClient::Answer HttpClient::open(std::string_view method, std::string_view path, std::string_view body,
                                    const HttpHeaders& headers) {
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", method, path, host_);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!body.empty() || method == "POST")
    head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  head += "\r\n";
  send(head.append(body));
  return read_head();
}

HttpClient::Answer HttpClient::request(std::string_view method, std::string_view path, std::string_view body,
                                       const HttpHeaders& headers) {
  Answer answer = open(method, path, body, headers);
  if (method != "HEAD") answer.body = read_rest();
  ended_ = true;
  return answer;
}

std::optional<HttpClient::Event> HttpClient::next_event() {
  size_t end;
  while ((end = body_.find("\n\n")) == std::string::npos)
    if (!more_body()) return std::nullopt;
  Event event;
  for (size_t at = 0; at < end;) {
    const size_t stop = std::min(body_.find('\n', at), end);
    const std::string_view text(body_.data() + at, stop - at);
    if (text.starts_with("event: ")) event.name = text.substr(7);
    if (text.starts_with("data: ")) event.data += text.substr(6);
    at = stop + 1;
  }
  body_.erase(0, end + 2);
  return event;
}

}  // namespace hadal::serve
