package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"
)

// Plan is what would be done with letters, as they were when it was made.
type Plan struct {
	ID      string       `json:"id"`
	Expires time.Time    `json:"expires"`
	Digest  string       `json:"digest"` // of the letters and their order
	Filter  LetterFilter `json:"filter"`
	Others  int          `json:"other_sources"` // letters that the filter selects and that are of other relays

	Redrive PlannedAction `json:"redrive"`
	Discard PlannedAction `json:"discard"`
}

// PlannedAction is one of the two that a plan can become.
type PlannedAction struct {
	Words     string `json:"words"` // that have to be typed
	Letters   int    `json:"letters"`
	Keys      int    `json:"keys"`
	Along     int    `json:"along"`        // of Letters, those that share a key with one that was selected
	Left      int    `json:"left_of_keys"` // letters of the same keys that go on waiting
	WouldFail int    `json:"would_fail"`   // as far as is known without sending
	Groups    []any  `json:"groups"`       // of the first keys
}

// Progress is how far a job came.
type Progress struct {
	Done    int    `json:"done"`    // letters
	Records int    `json:"records"` // that the brokers acknowledged
	Failed  int    `json:"failed"`  // letters that were not sent and go on waiting
	Keys    int    `json:"keys"`    // that were reached
	Groups  []any  `json:"groups"`  // of the first keys
	Text    string `json:"text"`    // what happened, in words
}

// Job is an action that runs, or ran.
type Job struct {
	ID      string     `json:"id"`
	Action  string     `json:"action"` // redrive or discard
	State   string     `json:"state"`  // running, done, failed (some letters go on waiting), cancelled
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended"`
	Letters int        `json:"letters"`
	Keys    int        `json:"of_keys"`
	Progress
}

// ErrHalted is what Act returns when it ended between two keys because it was to.
var ErrHalted = errors.New("cancelled between two keys")

const (
	planLasts    = 5 * time.Minute
	maxPlans     = 20
	maxJobs      = 20
	lettersFresh = 5 * time.Second // how old a list may be
	lettersKept  = time.Minute     // after it was last asked for
)

// desk has what was read of dead letters, plans, and jobs.
type desk struct {
	mu    sync.Mutex
	plans []*Plan
	jobs  []*work // the newest last
	life  context.Context
	ended sync.WaitGroup

	reading chan struct{} // one token: whoever has it reads
	list    *readList
	used    time.Time
}

// readList is the letters as they were at a time, newest first.
type readList struct {
	at, until time.Time // until: so long it is fresh
	letters   []Letter
	foreign   int
}

// work is a job with what belongs to it alone.
type work struct {
	job    Job
	halted bool
}

// open lets jobs begin until ctx ends; what it returns waits for their end.
func (d *desk) open(ctx context.Context) (wait func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life = ctx
	return func() {
		d.mu.Lock()
		d.life = nil
		d.mu.Unlock()
		d.ended.Wait()
	}
}

// forget drops a list that nobody asks for any more, and plans that are over.
func (d *desk) forget(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list != nil && now.Sub(d.used) >= lettersKept {
		d.list = nil
	}
	d.plans = slices.DeleteFunc(d.plans, func(p *Plan) bool { return now.Sub(p.Expires) > planLasts })
}

// fresh is the list, if it is not too old.
func (d *desk) fresh(now time.Time) *readList {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used = now
	if d.reading == nil {
		d.reading = make(chan struct{}, 1)
	}
	if d.list == nil || now.After(d.list.until) {
		return nil
	}
	return d.list
}

// read gives the letters. One asks the brokers at a time, the others wait for what it reads; a
// topic that takes long is read less often.
func (d *desk) read(ctx context.Context, now func() time.Time, from func(context.Context) (*LetterList, error)) (*readList, error) {
	if list := d.fresh(now()); list != nil {
		return list, nil
	}
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return nil, errors.New("the dead letters are being read; ask again in a moment")
	}
	if list := d.fresh(now()); list != nil {
		return list, nil
	}
	began := now()
	found, err := from(ctx)
	if err != nil {
		return nil, err
	}
	at := now()
	list := &readList{at: at, until: at.Add(max(lettersFresh, 10*at.Sub(began))), letters: found.Letters, foreign: found.Foreign}
	slices.SortFunc(list.letters, func(a, b Letter) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.Partition, a.Partition), cmp.Compare(b.Offset, a.Offset))
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = list
	return list, nil
}

// store takes a plan up and gives it its name.
func (d *desk) store(now time.Time, p *Plan) {
	p.ID, p.Expires = rand.Text(), now.Add(planLasts).UTC()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plans = append(d.plans, p)
	if len(d.plans) > maxPlans {
		d.plans = d.plans[1:]
	}
}

func (d *desk) planOf(id string) *Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.plans {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// begin makes the job of a plan, which is used up. It returns the job that runs instead, or nil
// and false where none may begin any more.
func (d *desk) begin(now time.Time, p *Plan, action string, of PlannedAction) (w *work, life context.Context, running bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.jobs); n > 0 && d.jobs[n-1].job.State == "running" {
		return d.jobs[n-1], nil, true
	}
	if d.life == nil || d.life.Err() != nil {
		return nil, nil, false
	}
	if !slices.Contains(d.plans, p) {
		return nil, nil, false
	}
	d.plans = slices.DeleteFunc(d.plans, func(one *Plan) bool { return one == p })
	w = &work{job: Job{ID: rand.Text(), Action: action, State: "running", Started: now.UTC(), Letters: of.Letters, Keys: of.Keys, Progress: Progress{Groups: []any{}}}}
	d.jobs = append(d.jobs, w)
	if len(d.jobs) > maxJobs {
		d.jobs = d.jobs[1:]
	}
	d.ended.Add(1)
	return w, d.life, false
}

// end says what happened to a job; what was read of the letters is not true any more.
func (d *desk) end(now time.Time, w *work, err error) Job {
	defer d.ended.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	at := now.UTC()
	w.job.Ended = &at
	switch {
	case errors.Is(err, ErrHalted):
		w.job.State = "cancelled"
	case err != nil:
		w.job.State, w.job.Text = "failed", err.Error()
	case w.job.Failed > 0:
		w.job.State = "failed"
	default:
		w.job.State = "done"
	}
	d.list = nil
	return w.job
}

func (d *desk) progress(w *work, p Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.job.Progress = p
}

// jobOf finds a job, and what of it is shown.
func (d *desk) jobOf(id string) (*work, Job, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.jobs {
		if w.job.ID == id {
			return w, w.job, true
		}
	}
	return nil, Job{}, false
}

// running is the job that runs, for whoever opens a page meanwhile.
func (d *desk) running() *Job {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.jobs); n > 0 {
		job := d.jobs[n-1].job
		return &job
	}
	return nil
}

func (d *desk) halt(w *work) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.halted = true
}

func (d *desk) isHalted(w *work) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return w.halted
}
