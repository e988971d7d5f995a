package docker

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
)

// EndpointConfig is the configuration of the engine. Both fields may be empty.
type EndpointConfig struct{ Host, Context string }

// Settings that select the engine, as Source returns them.
const (
	sourceHost    = "engine.host"
	sourceContext = "engine.context"
)

// NewEngine finds the engine as the docker CLI does: by config, DOCKER_HOST, DOCKER_CONTEXT, the
// current context of the CLI, else the default socket. It does not connect. It fails with
// engine_unavailable. Close must be called.
func NewEngine(config EndpointConfig, opts Options) (*Engine, error) {
	found, err := resolveEndpoint(config)
	if err == nil {
		var api *client.Client
		if api, err = client.New(found.options...); err == nil {
			found.host = cmp.Or(found.host, api.DaemonHost())
			return newEngine(api, config, found, opts), nil
		}
	}
	return nil, dray.Errorf(dray.CodeEngineUnavailable,
		"cannot select a container engine (by %s): %w", found.source, err).
		WithHint("run `docker version` in the same environment, or set engine.host in the configuration")
}

// endpoint is a selected engine.
type endpoint struct {
	// host is its address; empty is the client's default. The client of an ssh host has another one.
	host    string
	options []client.Opt
	source  string // the setting that selected it
}

func resolveEndpoint(config EndpointConfig) (endpoint, error) {
	for _, s := range []struct {
		source, value string
		resolve       func(string) (endpoint, error)
	}{
		{sourceHost, config.Host, hostEndpoint},
		{sourceContext, config.Context, contextEndpoint},
		{"DOCKER_HOST", os.Getenv("DOCKER_HOST"), hostEndpoint},
		{"DOCKER_CONTEXT", os.Getenv("DOCKER_CONTEXT"), contextEndpoint},
		{"currentContext of " + configDir(), currentContext(), contextEndpoint},
	} {
		if s.value != "" {
			found, err := s.resolve(s.value)
			found.source = s.source
			return found, err
		}
	}
	return endpoint{source: "default"}, nil
}

// hostEndpoint returns a host as the docker CLI accepts it, including ssh://.
func hostEndpoint(host string) (endpoint, error) {
	ep := docker.Endpoint{EndpointMeta: docker.EndpointMeta{Host: host}}
	opts, err := ep.ClientOpts()
	if err == nil && os.Getenv("DOCKER_CERT_PATH") != "" {
		opts = append(opts, client.WithTLSClientConfigFromEnv())
	}
	return endpoint{host: host, options: opts}, err
}

// defaultContext is a name that means no context; the store does not contain it.
const defaultContext = "default"

func contextEndpoint(name string) (endpoint, error) {
	if name == defaultContext {
		return endpoint{}, nil
	}
	s := store.New(filepath.Join(configDir(), "contexts"), store.NewConfig(
		func() any { return &struct{}{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
	meta, err := s.GetMetadata(name)
	if err != nil {
		return endpoint{}, err
	}
	selected, err := docker.EndpointFromContext(meta)
	if err != nil {
		return endpoint{}, err
	}
	ep, err := docker.WithTLSData(s, name, selected)
	if err != nil {
		return endpoint{}, err
	}
	opts, err := ep.ClientOpts()
	return endpoint{host: ep.Host, options: opts}, err
}

func configDir() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	home, _ := os.UserHomeDir() // without a home directory there is no configuration
	return filepath.Join(home, ".docker")
}

// currentContext returns the current context of the docker CLI. It is empty if the configuration is
// missing or invalid, as in the CLI.
func currentContext() string {
	b, err := os.ReadFile(filepath.Join(configDir(), "config.json"))
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err != nil || json.Unmarshal(b, &config) != nil || config.CurrentContext == defaultContext {
		return ""
	}
	return config.CurrentContext
}
