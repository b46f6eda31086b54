package topics

import "sync"

// TopicSet is names of topics. Any goroutine may use it.
type TopicSet struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// Add has the set hold the name.
func (s *TopicSet) Add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[string]struct{})
	}
	s.names[name] = struct{}{}
}

// Has reports whether the set holds the name.
func (s *TopicSet) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.names[name]
	return ok
}
