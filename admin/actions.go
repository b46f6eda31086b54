package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const planPause = time.Second

// mostPlaces bounds the letters that a plan may name one by one.
const mostPlaces = 300

// plan finds out what would be done with letters.
func (a *api) plan(w http.ResponseWriter, r *http.Request) {
	if a.noLetters(w) {
		return
	}
	var filter LetterFilter
	if !decode(w, r, &filter, `send the filter, such as {"reason": "record_too_large"}; allowed: reason, table, topic, since (a time), letters (a list of {"partition": 3, "offset": 17}); {} selects all that wait`) {
		return
	}
	if len(filter.Places) > mostPlaces {
		problem(w, http.StatusBadRequest, "too_many_letters", fmt.Sprintf("letters: %d are too many; allowed: %d, or a filter", len(filter.Places), mostPlaces))
		return
	}
	for _, at := range filter.Places {
		if at.Partition < 0 || at.Offset < 0 {
			problem(w, http.StatusBadRequest, "unknown_place", fmt.Sprintf("letters: %d/%d is no place; allowed: numbers from 0 on", at.Partition, at.Offset))
			return
		}
	}
	made, ok := a.once(w, r, &a.console.planning, planPause, "plan", func(ctx context.Context) (any, error) { return a.console.tools.Letters.Plan(ctx, filter) })
	if !ok {
		return
	}
	p, ok := made.(*Plan)
	if !ok {
		problem(w, http.StatusServiceUnavailable, "not_answered", "plan: there is none")
		return
	}
	p.Filter = filter
	a.console.desk.store(a.now(), p)
	who, _ := a.who(r)
	a.audit(r, who, "plan", filterText(filter), p.Redrive.Letters, "done")
	w.Header().Set("Location", "/api/v1/dead-letters/plans/"+p.ID)
	answerJSON(w, p)
}

// filterText is a filter for the log, shortened.
func filterText(f LetterFilter) string {
	text, _ := json.Marshal(f)
	return cut(string(text))
}

func (a *api) redrive(w http.ResponseWriter, r *http.Request) { a.act(w, r, "redrive") }
func (a *api) discard(w http.ResponseWriter, r *http.Request) { a.act(w, r, "discard") }

// act begins the job of a plan, once the words were typed.
func (a *api) act(w http.ResponseWriter, r *http.Request, action string) {
	if a.noLetters(w) {
		return
	}
	var given struct {
		Words string `json:"words"`
	}
	if !decode(w, r, &given, `send {"words": "…"} with the words that the plan names`) {
		return
	}
	p := a.console.desk.planOf(r.PathValue("id"))
	if p == nil {
		problem(w, http.StatusNotFound, "unknown_plan", "there is no such plan, or it was used; plan again")
		return
	}
	if a.now().After(p.Expires) {
		problem(w, http.StatusConflict, "plan_expired", "the plan is older than 5 minutes; plan again")
		return
	}
	of := p.Redrive
	if action == "discard" {
		of = p.Discard
	}
	if of.Letters == 0 {
		problem(w, http.StatusConflict, "nothing_to_do", "the plan has no letter that waits; plan again")
		return
	}
	if strings.TrimSpace(given.Words) != of.Words {
		problem(w, http.StatusBadRequest, "wrong_words", "words: type "+of.Words+" to go on")
		return
	}
	if a.tooMany(w) {
		return
	}
	who, _ := a.who(r)
	one, life, running := a.console.desk.begin(a.now(), p, action, of)
	switch {
	case running:
		problem(w, http.StatusConflict, "running", "another job runs: see /api/v1/jobs/"+one.job.ID)
		return
	case one == nil:
		problem(w, http.StatusServiceUnavailable, "stopping", "no job can begin: the relay starts or stops, or the plan was used a moment ago")
		return
	}
	a.audit(r, who, action, filterText(p.Filter), of.Letters, "begun")
	a.answerJob(w, r, one, a.perform(life, r, who, one, p, action))
}

// perform runs a job beside the request. What it returns is closed once the job has begun with
// the letters, or has an error if it never did.
func (a *api) perform(life context.Context, r *http.Request, who asker, one *work, p *Plan, action string) <-chan error {
	c, begun := a.console, make(chan error, 1)
	r = r.Clone(context.WithoutCancel(r.Context()))
	go func() {
		started := false
		err := c.tools.Letters.Act(life, p, action == "discard", func() { started = true; close(begun) },
			func(at Progress) { c.desk.progress(one, at) }, func() bool { return c.desk.isHalted(one) })
		job := c.desk.end(a.now(), one, err)
		a.audit(r, who, action, filterText(p.Filter), job.Done, job.State)
		if !started {
			if err == nil {
				err = errors.New("the job ended before it began")
			}
			begun <- err
			close(begun)
		}
	}()
	return begun
}

// answerJob waits until a job has begun. A job that takes longer to begin says what happened to it
// later.
func (a *api) answerJob(w http.ResponseWriter, r *http.Request, one *work, begun <-chan error) {
	select {
	case err := <-begun:
		if err != nil {
			fail(w, err)
			return
		}
	case <-time.After(patience):
	case <-r.Context().Done():
		return
	}
	_, job, _ := a.console.desk.jobOf(one.job.ID)
	w.Header().Set("Location", "/api/v1/jobs/"+job.ID)
	answerJSONAs(w, http.StatusAccepted, job)
}

// job shows one; `latest` is the one that began last.
func (a *api) job(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") == "latest" {
		answerJSON(w, map[string]*Job{"job": a.console.desk.running()})
		return
	}
	if _, job, found := a.console.desk.jobOf(r.PathValue("id")); found {
		answerJSON(w, map[string]*Job{"job": &job})
		return
	}
	problem(w, http.StatusNotFound, "unknown_job", "there is no such job; the last "+fmt.Sprint(maxJobs)+" are remembered until the relay ends")
}

// cancel ends a job between two keys.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	one, job, found := a.console.desk.jobOf(r.PathValue("id"))
	switch {
	case !found:
		problem(w, http.StatusNotFound, "unknown_job", "there is no such job")
		return
	case job.State != "running":
		problem(w, http.StatusConflict, "ended", "the job is over: "+job.State)
		return
	}
	a.console.desk.halt(one)
	who, _ := a.who(r)
	a.audit(r, who, "cancel", job.ID, job.Done, "asked")
	answerJSONAs(w, http.StatusAccepted, job)
}
