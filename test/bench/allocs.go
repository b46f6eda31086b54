package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mallocs are the names under which a Go program counts the objects it allocated: as
// its memory statistics do, with the tiny ones, and as its newer metrics do.
var mallocs = []string{"go_memstats_mallocs_total", "go_gc_heap_allocs_objects_total"}

// allocated asks a contestant at the end of a run how many objects it has allocated
// since its start.
func allocated(ctx context.Context, address string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s", address, answer.Status)
	}
	return allocatedIn(answer.Body)
}

// allocatedIn finds the count in metrics as text, by the first of the names that is
// there.
func allocatedIn(metrics io.Reader) (float64, error) {
	found := map[string]float64{}
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		line := lines.Text()
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		if !slices.Contains(mallocs, name) {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		found[name] = n
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	for _, m := range mallocs {
		if n, ok := found[m]; ok {
			return n, nil
		}
	}
	return 0, fmt.Errorf("none of %s is there", strings.Join(mallocs, ", "))
}
