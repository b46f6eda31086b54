package sink

import "sync"

// topicSet is names of topics. Any goroutine may use it.
type topicSet struct {
	mu    sync.Mutex
	names map[string]struct{}
}

func (s *topicSet) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[string]struct{})
	}
	s.names[name] = struct{}{}
}

func (s *topicSet) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.names[name]
	return ok
}
