// Something that is empty in nearly all of very many objects: made when it is first changed.
#pragma once

#include <memory>

namespace tutti {

template <class T>
class OnDemand {
 public:
  const T& get() const {
    static const T kNone{};
    return made_ == nullptr ? kNone : *made_;
  }
  T& change() {
    if (made_ == nullptr) made_ = std::make_unique<T>();
    return *made_;
  }
  void clear() { made_.reset(); }

 private:
  std::unique_ptr<T> made_;
};

}  // namespace tutti
