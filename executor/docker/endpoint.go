package docker

import (
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
	clientOpts, source, err := resolveEndpoint(config)
	if err == nil {
		var api *client.Client
		if api, err = client.New(clientOpts...); err == nil {
			return newEngine(api, config, source, opts), nil
		}
	}
	return nil, dray.Errorf(dray.CodeEngineUnavailable,
		"cannot select a container engine (by %s): %w", source, err).
		WithHint("run `docker version` in the same environment, or set engine.host in the configuration")
}

// resolveEndpoint returns the options of the client and the setting that selected them.
func resolveEndpoint(config EndpointConfig) (opts []client.Opt, source string, err error) {
	for _, s := range []struct {
		source, value string
		options       func(string) ([]client.Opt, error)
	}{
		{sourceHost, config.Host, hostOptions},
		{sourceContext, config.Context, contextOptions},
		{"DOCKER_HOST", os.Getenv("DOCKER_HOST"), hostOptions},
		{"DOCKER_CONTEXT", os.Getenv("DOCKER_CONTEXT"), contextOptions},
		{"currentContext of " + configDir(), currentContext(), contextOptions},
	} {
		if s.value != "" {
			opts, err = s.options(s.value)
			return opts, s.source, err
		}
	}
	return nil, "default", nil
}

// hostOptions returns options for a host as the docker CLI accepts it, including ssh://.
func hostOptions(host string) ([]client.Opt, error) {
	ep := docker.Endpoint{EndpointMeta: docker.EndpointMeta{Host: host}}
	opts, err := ep.ClientOpts()
	if err != nil {
		return nil, err
	}
	if os.Getenv("DOCKER_CERT_PATH") != "" {
		opts = append(opts, client.WithTLSClientConfigFromEnv())
	}
	return opts, nil
}

// defaultContext is a name that means no context; the store does not contain it.
const defaultContext = "default"

func contextOptions(name string) ([]client.Opt, error) {
	if name == defaultContext {
		return nil, nil
	}
	s := store.New(filepath.Join(configDir(), "contexts"), store.NewConfig(
		func() any { return &struct{}{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
	meta, err := s.GetMetadata(name)
	if err != nil {
		return nil, err
	}
	endpoint, err := docker.EndpointFromContext(meta)
	if err != nil {
		return nil, err
	}
	ep, err := docker.WithTLSData(s, name, endpoint)
	if err != nil {
		return nil, err
	}
	return ep.ClientOpts()
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
