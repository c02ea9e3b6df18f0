// An intrusive doubly linked list: the links live in the elements, so that inserting never
// allocates and an element can leave whatever list it is in, in constant time, when it dies.
#pragma once

#include "base/assert.h"

namespace tutti {

class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  bool linked() const { return next_ != nullptr; }
  void unlink() {
    if (next_ == nullptr) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = nullptr;
  }

 private:
  template <class T>
  friend class List;
  ListNode* previous_ = nullptr;
  ListNode* next_ = nullptr;
};

// T derives from ListNode. The list owns nothing; elements left in it when it dies are unlinked.
template <class T>
class List {
 public:
  List() { clear_links(); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List() {
    while (!empty()) head_.next_->unlink();
    head_.previous_ = head_.next_ = nullptr;
  }

  bool empty() const { return head_.next_ == &head_; }
  T& front() { return *static_cast<T*>(head_.next_); }

  void push_back(T& element) {
    ListNode& node = element;
    TUTTI_ASSERT(!node.linked(), "an element is in one list at a time");
    node.previous_ = head_.previous_;
    node.next_ = &head_;
    head_.previous_->next_ = &node;
    head_.previous_ = &node;
  }

  T& pop_front() {
    T& element = front();
    static_cast<ListNode&>(element).unlink();
    return element;
  }

  // The element after this one, or nullptr at the end.
  T* next(T& element) {
    ListNode* node = static_cast<ListNode&>(element).next_;
    return node == &head_ ? nullptr : static_cast<T*>(node);
  }
  T* first() { return empty() ? nullptr : &front(); }

  // Moves everything out of the other list, keeping its order, to the end of this one.
  void splice_back(List& other) {
    if (other.empty()) return;
    other.head_.next_->previous_ = head_.previous_;
    head_.previous_->next_ = other.head_.next_;
    other.head_.previous_->next_ = &head_;
    head_.previous_ = other.head_.previous_;
    other.clear_links();
  }

 private:
  void clear_links() { head_.previous_ = head_.next_ = &head_; }
  ListNode head_;
};

}  // namespace tutti
