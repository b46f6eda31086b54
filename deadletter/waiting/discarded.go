package waiting

// discarded keeps the events whose letters were discarded, by table. Nobody sends them, so their rows
// are done with and not delivered. A letter without an event id, or one that was too large for it,
// names no row.
type discarded struct {
	limit  int
	events map[string]map[string]struct{}
	count  int
	bytes  int
	full   bool
}

func (d *discarded) clear() { *d = discarded{limit: d.limit} }

func (d *discarded) add(table, event string) {
	if event == "" {
		return
	}
	if _, known := d.events[table][event]; known {
		return
	}
	if d.full || d.count >= d.limit || d.bytes+len(event) > maxBytes {
		d.full = true
		return
	}
	if d.events == nil {
		d.events = make(map[string]map[string]struct{})
	}
	if d.events[table] == nil {
		d.events[table] = make(map[string]struct{})
	}
	d.events[table][event] = struct{}{}
	d.count++
	d.bytes += len(event)
}

// sent forgets an event that was discarded earlier: another letter of it was sent.
func (d *discarded) sent(table, event string) {
	if _, known := d.events[table][event]; known {
		delete(d.events[table], event)
		d.count--
		d.bytes -= len(event)
	}
}

// Discarded are the events of the tables that mine selects by their names (schema.name) whose
// letters were discarded, and whether they are not all of them. It stays so once it is.
func (s *Set) Discarded(mine func(table string) bool) (ids map[string]struct{}, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = make(map[string]struct{})
	for table, events := range s.gone.events {
		if !mine(table) {
			continue
		}
		for event := range events {
			ids[event] = struct{}{}
		}
	}
	return ids, s.gone.full
}
