// What a member holds: its partitions, and records that nobody has taken yet.
package main

import "sync"

type partition struct {
	topic  string
	number int32
}

type holdings struct {
	lock     sync.Mutex
	assigned map[partition]bool
	revoked  []partition // everything ever taken away, in order
	untaken  []record
	next     map[partition]int64 // offset after the last record that was taken
}

func newHoldings() *holdings {
	return &holdings{assigned: map[partition]bool{}, next: map[partition]int64{}}
}

func (h *holdings) add(parts map[string][]int32) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for topic, numbers := range parts {
		for _, number := range numbers {
			h.assigned[partition{topic, number}] = true
		}
	}
}

// Records of a partition that goes away and were not taken are the next owner's.
func (h *holdings) remove(parts map[string][]int32) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for topic, numbers := range parts {
		for _, number := range numbers {
			gone := partition{topic, number}
			delete(h.assigned, gone)
			delete(h.next, gone)
			h.revoked = append(h.revoked, gone)
			h.drop(gone)
		}
	}
}

func (h *holdings) drop(gone partition) {
	kept := h.untaken[:0]
	for _, each := range h.untaken {
		if (partition{each.Topic, each.Partition}) != gone {
			kept = append(kept, each)
		}
	}
	h.untaken = kept
}

func (h *holdings) forget(at partition) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.drop(at)
	delete(h.next, at)
}

func (h *holdings) receive(records ...record) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, each := range records {
		if h.assigned[partition{each.Topic, each.Partition}] {
			h.untaken = append(h.untaken, each)
		}
	}
}

func (h *holdings) take() []record {
	h.lock.Lock()
	defer h.lock.Unlock()
	taken := h.untaken
	h.untaken = nil
	for _, each := range taken {
		h.next[partition{each.Topic, each.Partition}] = each.Offset + 1
	}
	if taken == nil {
		return []record{}
	}
	return taken
}

func (h *holdings) positions() map[partition]int64 {
	h.lock.Lock()
	defer h.lock.Unlock()
	copied := map[partition]int64{}
	for at, next := range h.next {
		copied[at] = next
	}
	return copied
}

func (h *holdings) show() map[string]any {
	h.lock.Lock()
	defer h.lock.Unlock()
	now, gone := [][]any{}, [][]any{}
	for at := range h.assigned {
		now = append(now, []any{at.topic, at.number})
	}
	for _, at := range h.revoked {
		gone = append(gone, []any{at.topic, at.number})
	}
	return map[string]any{"now": now, "revoked": gone}
}
