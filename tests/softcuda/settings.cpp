// settings.cpp: reads the SOFTCUDA_* environment variables. README.md lists them.
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>

#include "driver.h"

namespace softcuda {
namespace {

[[noreturn]] void refuse(const char *name, const char *value, const std::string &expected) {
  throw std::invalid_argument(std::string(name) + "=" + value + " is not usable: give " + expected);
}

uint64_t number(const char *name, uint64_t fallback) {
  const char *value = getenv(name);
  if (!value) return fallback;
  char *end;
  uint64_t result = strtoull(value, &end, 10);
  if (end == value || *end) refuse(name, value, "a whole number");
  return result;
}

bool flag(const char *name, bool fallback) {
  const char *value = getenv(name);
  if (!value) return fallback;
  if (std::string(value) == "0") return false;
  if (std::string(value) == "1") return true;
  refuse(name, value, "0 or 1");
}

// "64M", "1.5G", "4096": binary multiples.
size_t byte_count(const char *name, size_t fallback) {
  const char *value = getenv(name);
  if (!value) return fallback;
  char *end;
  double result = strtod(value, &end);
  std::string unit = end;
  for (const char *suffix : {"", "K", "M", "G"}) {
    if (end != value && result >= 0 && (unit == suffix || (*suffix && unit == suffix + std::string("iB"))))
      return size_t(result);
    result *= 1024;
  }
  refuse(name, value, "a number of bytes such as 4096, 64M or 1.5G");
}

template <class T>
T choice(const char *name, T fallback, std::initializer_list<std::pair<const char *, T>> choices) {
  const char *value = getenv(name);
  if (!value) return fallback;
  std::string known;
  for (const auto &[word, meaning] : choices) {
    if (word == std::string(value)) return meaning;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  refuse(name, value, "one of " + known);
}

}  // namespace

Settings read_settings() {
  Settings s;
  s.capacity_bytes = byte_count("SOFTCUDA_MEM", s.capacity_bytes);
  s.schedule = choice<Schedule>("SOFTCUDA_SCHED", s.schedule,
                                {{"threads", Schedule::threads},
                                 {"eager", Schedule::eager},
                                 {"lazy", Schedule::lazy},
                                 {"random", Schedule::random}});
  s.order =
      choice<Order>("SOFTCUDA_ORDER", s.order,
                    {{"asc", Order::ascending}, {"desc", Order::descending}, {"random", Order::random}});
  s.seed = number("SOFTCUDA_SEED", s.seed);
  s.jitter_us = unsigned(number("SOFTCUDA_JITTER_US", s.jitter_us));
  s.workers = int(number("SOFTCUDA_WORKERS", s.workers));
  if (s.workers < 1) refuse("SOFTCUDA_WORKERS", "0", "1 or more");
  s.compute_capability = int(number("SOFTCUDA_CC", s.compute_capability));
  s.align_bytes = number("SOFTCUDA_ALIGN", s.align_bytes);
  if (s.align_bytes < 1 || s.align_bytes > 4096 || (s.align_bytes & (s.align_bytes - 1)))
    refuse("SOFTCUDA_ALIGN", getenv("SOFTCUDA_ALIGN"), "a power of two up to 4096");
  s.page_bytes = byte_count("SOFTCUDA_PAGE", s.page_bytes);
  if (s.page_bytes < 4096 || (s.page_bytes & (s.page_bytes - 1)))
    refuse("SOFTCUDA_PAGE", getenv("SOFTCUDA_PAGE"), "a power of two from 4096 on");
  s.poison = flag("SOFTCUDA_POISON", s.poison);
  s.guard = flag("SOFTCUDA_GUARD", s.guard);
  s.race = flag("SOFTCUDA_RACE", s.race);
  s.drop = flag("SOFTCUDA_DROP", s.drop);
  s.leaks = flag("SOFTCUDA_LEAKS", s.leaks);
  return s;
}

}  // namespace softcuda
