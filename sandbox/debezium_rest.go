package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ConnectError is what the worker answered instead of doing it.
type ConnectError struct {
	Status  int
	Message string
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("Kafka Connect answered HTTP %d: %s", e.Status, e.Message)
}

// ConnectorState is what the worker says of a connector.
type ConnectorState struct {
	Connector string // RUNNING, STOPPED, PAUSED, UNASSIGNED, FAILED
	Trace     string // why the connector failed
	Tasks     []TaskState
}

// TaskState is what the worker says of a task.
type TaskState struct {
	State string // RUNNING, FAILED, …
	Trace string // why it failed: exception, causes, stack frames
}

// Running reports whether the connector and its task run.
func (s ConnectorState) Running() bool {
	return s.Connector == "RUNNING" && len(s.Tasks) > 0 && s.Tasks[0].State == "RUNNING"
}

// Failed is the trace of the connector or of its first task that failed.
func (s ConnectorState) Failed() (trace string, failed bool) {
	if s.Connector == "FAILED" {
		return s.Trace, true
	}
	for _, task := range s.Tasks {
		if task.State == "FAILED" {
			return task.Trace, true
		}
	}
	return "", false
}

// Post makes a connector from {"name": …, "config": {…}}. A refusal is a
// *ConnectError.
func (d *Debezium) Post(ctx context.Context, connector []byte) error {
	return d.call(ctx, http.MethodPost, "/connectors", connector, nil)
}

// Delete removes a connector; its offsets stay.
func (d *Debezium) Delete(ctx context.Context, name string) error {
	return d.call(ctx, http.MethodDelete, "/connectors/"+url.PathEscape(name), nil, nil)
}

// Halt ends a connector's tasks in order and keeps the connector.
func (d *Debezium) Halt(ctx context.Context, name string) error {
	return d.call(ctx, http.MethodPut, "/connectors/"+url.PathEscape(name)+"/stop", nil, nil)
}

// Resume ends a Halt.
func (d *Debezium) Resume(ctx context.Context, name string) error {
	return d.call(ctx, http.MethodPut, "/connectors/"+url.PathEscape(name)+"/resume", nil, nil)
}

// State asks for a connector.
func (d *Debezium) State(ctx context.Context, name string) (ConnectorState, error) {
	var answer struct {
		Connector TaskState   `json:"connector"`
		Tasks     []TaskState `json:"tasks"`
	}
	err := d.call(ctx, http.MethodGet, "/connectors/"+url.PathEscape(name)+"/status", nil, &answer)
	return ConnectorState{Connector: answer.Connector.State, Trace: answer.Connector.Trace, Tasks: answer.Tasks}, err
}

// Await asks until holds is true of the connector. One that the worker does not
// know yet has the zero state.
func (d *Debezium) Await(ctx context.Context, name string, holds func(ConnectorState) bool) (ConnectorState, error) {
	for {
		state, err := d.State(ctx, name)
		var refused *ConnectError
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			err = nil
		}
		if err == nil && holds(state) {
			return state, nil
		}
		select {
		case <-ctx.Done():
			return state, fmt.Errorf("wait for connector %s: %w (last state %+v)", name, errors.Join(context.Cause(ctx), err), state)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// AwaitRunning returns once the connector's task runs; one that failed is an
// error with its trace. That a task runs does not say that it streams: its slot
// is active a moment later.
func (d *Debezium) AwaitRunning(ctx context.Context, name string) error {
	state, err := d.Await(ctx, name, func(s ConnectorState) bool {
		_, failed := s.Failed()
		return failed || s.Running()
	})
	if trace, failed := state.Failed(); err == nil && failed {
		return fmt.Errorf("connector %s failed: %s", name, trace)
	}
	return err
}

// Offsets is what the worker has stored for a connector, as it answers it.
func (d *Debezium) Offsets(ctx context.Context, name string) (json.RawMessage, error) {
	var answer json.RawMessage
	err := d.call(ctx, http.MethodGet, "/connectors/"+url.PathEscape(name)+"/offsets", nil, &answer)
	return answer, err
}

func (d *Debezium) call(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 95*time.Second) // the worker itself gives up after 90
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.URL()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var refusal struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(answer, &refusal) != nil {
			refusal.Message = string(answer)
		}
		return &ConnectError{Status: response.StatusCode, Message: refusal.Message}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// Validate says what the worker finds wrong with a connector's configuration,
// key by key.
func (d *Debezium) Validate(ctx context.Context, config map[string]string) ([]string, error) {
	body, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Configs []struct {
			Value struct {
				Errors []string `json:"errors"`
			} `json:"value"`
		} `json:"configs"`
	}
	err = d.call(ctx, http.MethodPut, "/connector-plugins/"+url.PathEscape(config["connector.class"])+"/config/validate", body, &answer)
	var problems []string
	for _, c := range answer.Configs {
		problems = append(problems, c.Value.Errors...)
	}
	return problems, err
}
