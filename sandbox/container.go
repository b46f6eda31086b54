package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// container is a server in a container. It is removed when this process ends, also by
// kill -9: container_owner.go.
type container struct {
	pool     *dockertest.Pool
	resource *dockertest.Resource
	url      string // PostgreSQL's, or the broker's address
}

// containerLimit is how long a server in a container may take to answer: as long as one
// that is a process. A busy machine needs minutes for a broker.
const containerLimit = 4 * time.Minute

// ErrNoEngine means that no container engine answers, so that none can be meant.
var ErrNoEngine = errors.New("no container engine")

// engine answers with ErrNoEngine when no container engine does.
func engine() (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoEngine, err)
	}
	pool.Client.SetTimeout(2 * time.Minute)
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("%w answers: %w", ErrNoEngine, err)
	}
	return pool, nil
}

func runContainer(ctx context.Context, options *dockertest.RunOptions, ready func(*container) error) (*container, error) {
	pool, err := engine()
	if err != nil {
		return nil, err
	}
	_ = removeContainers(pool, ownerGone) // somebody else may be removing the same
	if _, err := startReaper(); err != nil {
		return nil, err
	}
	options.Labels = map[string]string{ownerLabel: ownerOf(os.Getpid())}
	resource, err := pool.RunWithOptions(options, func(host *docker.HostConfig) {
		host.AutoRemove = true
		host.RestartPolicy = docker.NeverRestart()
	})
	if err != nil {
		return nil, fmt.Errorf("start container %s:%s: %w", options.Repository, options.Tag, err)
	}
	c := &container{pool: pool, resource: resource}
	ctx, cancel := context.WithTimeout(ctx, containerLimit)
	defer cancel()
	for {
		if err = ready(c); err == nil {
			return c, nil
		}
		if ctx.Err() != nil || c.ended() {
			return nil, errors.Join(fmt.Errorf("wait for container %s: %w", options.Repository, err), c.close())
		}
		pause(ctx, 250*time.Millisecond)
	}
}

// ended says that the container's program did. Containers are removed with it.
func (c *container) ended() bool {
	_, err := c.pool.Client.InspectContainer(c.resource.Container.ID)
	_, gone := errors.AsType[*docker.NoSuchContainer](err)
	return gone
}

func startPostgresContainer(ctx context.Context, options PostgresOptions) (*container, error) {
	if options.Password != "" || options.CertFile != "" {
		return nil, errors.New("a container cannot have its own password or certificate here")
	}
	version := options.Version
	if version == "" {
		version = Majors[len(Majors)-1]
	}
	command := []string{"postgres", "-c", "wal_level=logical", "-c", "max_replication_slots=20", "-c", "max_wal_senders=20", "-c", "fsync=off"}
	for name, value := range options.Settings {
		command = append(command, "-c", name+"="+value)
	}
	return runContainer(ctx, &dockertest.RunOptions{
		Repository: "postgres",
		Tag:        version,
		Cmd:        command,
		Env:        []string{"POSTGRES_HOST_AUTH_METHOD=trust"},
	}, func(c *container) error {
		c.url = "postgres://postgres@" + c.resource.GetHostPort("5432/tcp") + "/postgres?sslmode=disable"
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		return conn.Ping(ctx)
	})
}

func (c *container) close() error {
	if err := c.pool.Purge(c.resource); err != nil {
		var gone *docker.NoSuchContainer
		if errors.As(err, &gone) {
			return nil
		}
		return fmt.Errorf("remove container: %w", err)
	}
	return nil
}

// bindings publish a container's port on a port of the loopback address.
func bindings(inside docker.Port, outside int) map[docker.Port][]docker.PortBinding {
	return map[docker.Port][]docker.PortBinding{inside: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(outside)}}}
}
