package match

import (
	"fmt"
	"io"
	"os"
)

// fan is into how many parts entries are divided at a time.
const fan = 64

// budget is the memory for entries that are in no file yet, of all divisions together.
type budget struct {
	dir    string
	limit  int
	used   int
	all    map[*division]struct{}
	onDisk int64 // bytes in files now
	most   int64
}

func newBudget(dir string, limit int) *budget {
	return &budget{dir: dir, limit: limit, all: make(map[*division]struct{})}
}

// flush writes everything that waits.
func (b *budget) flush() error {
	for d := range b.all {
		for i := range d.parts {
			if err := d.parts[i].flush(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// close removes the files of all divisions.
func (b *budget) close() {
	for d := range b.all {
		d.close()
	}
}

// division is entries of one size, divided by bits of what they are looked up by.
type division struct {
	budget *budget
	size   int
	parts  [fan]part
}

type part struct {
	waiting []byte
	file    *os.File
	written int64
}

func (b *budget) divide(size int) *division {
	d := &division{budget: b, size: size}
	b.all[d] = struct{}{}
	return d
}

// add puts an entry into a part.
func (d *division) add(n int, entry func([]byte) []byte) error {
	p := &d.parts[n]
	before := cap(p.waiting)
	p.waiting = entry(p.waiting)
	d.budget.used += cap(p.waiting) - before
	if d.budget.used <= d.budget.limit {
		return nil
	}
	return d.budget.flush()
}

// flush writes what waits to the part's file, which has no name: it goes with the process.
func (p *part) flush(b *budget) error {
	b.used -= cap(p.waiting)
	waiting := p.waiting
	p.waiting = nil
	if len(waiting) == 0 {
		return nil
	}
	if p.file == nil {
		file, err := b.file()
		if err != nil {
			return err
		}
		p.file = file
	}
	n, err := p.file.Write(waiting)
	p.written += int64(n)
	return b.wrote(n, err)
}

// file is a new one, without a name where the system allows that: it goes with the process.
func (b *budget) file() (*os.File, error) {
	file, err := os.CreateTemp(b.dir, "cdc-relay-audit-*")
	if err != nil {
		return nil, fmt.Errorf("write entries that are more than --memory: %w", err)
	}
	_ = os.Remove(file.Name()) // else done does
	return file, nil
}

func (b *budget) wrote(n int, err error) error {
	b.onDisk += int64(n)
	b.most = max(b.most, b.onDisk)
	if err != nil {
		return fmt.Errorf("write entries that are more than --memory: %w", err)
	}
	return nil
}

// done gives a file back.
func (b *budget) done(file *os.File, length int64) {
	b.onDisk -= length
	_ = file.Close()
	_ = os.Remove(file.Name()) // most are without a name already
}

// count is the number of entries of a part.
func (d *division) count(n int) int {
	p := &d.parts[n]
	return int((p.written + int64(len(p.waiting))) / int64(d.size))
}

// each visits the entries of a part, which are gone afterwards. Entries that visit adds elsewhere
// do not get among them.
func (d *division) each(n int, visit func(entry []byte) error) error {
	p := d.parts[n]
	d.parts[n] = part{}
	defer p.close(d.budget)
	if p.file != nil {
		if err := scan(p.file, p.written, d.size, visit); err != nil {
			return err
		}
	}
	for waiting := p.waiting; len(waiting) >= d.size; waiting = waiting[d.size:] {
		if err := visit(waiting[:d.size]); err != nil {
			return err
		}
	}
	return nil
}

// scan reads a file of entries.
func scan(file *os.File, length int64, size int, visit func(entry []byte) error) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read entries: %w", err)
	}
	buf := make([]byte, max(1, (256<<10)/size)*size)
	for left := length; left > 0; {
		chunk := buf[:min(left, int64(len(buf)))]
		if _, err := io.ReadFull(file, chunk); err != nil {
			return fmt.Errorf("read entries: %w", err)
		}
		left -= int64(len(chunk))
		for ; len(chunk) >= size; chunk = chunk[size:] {
			if err := visit(chunk[:size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *part) close(b *budget) {
	b.used -= cap(p.waiting)
	if p.file != nil {
		b.done(p.file, p.written)
	}
	*p = part{}
}

func (d *division) close() {
	for i := range d.parts {
		d.parts[i].close(d.budget)
	}
	delete(d.budget.all, d)
}
