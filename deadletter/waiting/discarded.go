package waiting

// discarded keeps the events whose letters were discarded, by what the letters say of their tables. Nobody
// sends them, so their rows are done with and not delivered. A letter without an event id, or one that
// was too large for it, names no row.
type discarded struct {
	limit  int
	events map[from]map[string]struct{}
	count  int
	bytes  int
	full   bool
}

func (d *discarded) clear() { *d = discarded{limit: d.limit} }

func (d *discarded) add(table from, event string) {
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
		d.events = make(map[from]map[string]struct{})
	}
	if d.events[table] == nil {
		d.events[table] = make(map[string]struct{})
	}
	d.events[table][event] = struct{}{}
	d.count++
	d.bytes += len(event)
}

// sent forgets an event that was discarded earlier: another letter of it was sent.
func (d *discarded) sent(table from, event string) {
	if _, known := d.events[table][event]; known {
		delete(d.events[table], event)
		d.count--
		d.bytes -= len(event)
	}
}

// Discarded are the events of a table whose letters were discarded, and whether they are not all of them. It
// stays so once it is. A letter whose event id is known to be of another column than that of the mapping names
// no row.
func (s *Set) Discarded(t *Table) (ids map[string]struct{}, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = make(map[string]struct{})
	for from, events := range s.gone.events {
		if !t.may(&from) || from.of.Known && from.of.ID != t.ID {
			continue
		}
		for event := range events {
			ids[event] = struct{}{}
		}
	}
	return ids, s.gone.full
}
