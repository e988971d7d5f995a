package container

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
)

// EndpointConfig is what configuration says about the engine; both may be empty.
type EndpointConfig struct{ Host, Context string }

// What decides by configuration, as Source names it.
const (
	sourceHost    = "engine.host"
	sourceContext = "engine.context"
)

// NewEngine finds the engine as the docker CLI does: our configuration, DOCKER_HOST,
// DOCKER_CONTEXT, the current context of the CLI's configuration, the default socket. It does not
// connect. Errors: engine_unavailable.
func NewEngine(choice EndpointConfig, opts Options) (*Engine, error) {
	clientOpts, source, err := resolveEndpoint(choice)
	if err == nil {
		var api *client.Client
		if api, err = client.New(clientOpts...); err == nil {
			return newEngine(api, choice, source, opts), nil
		}
	}
	return nil, dray.Errorf(dray.CodeEngineUnavailable,
		"no container engine could be chosen (by %s): %w", source, err).
		WithHint("run `docker version` with the same environment, or set engine.host in the configuration")
}

// resolveEndpoint gives the client's options and says what decided.
func resolveEndpoint(choice EndpointConfig) (opts []client.Opt, source string, err error) {
	switch {
	case choice.Host != "":
		opts, err = hostOptions(choice.Host)
		return opts, sourceHost, err
	case choice.Context != "":
		opts, err = contextOptions(choice.Context)
		return opts, sourceContext, err
	case os.Getenv("DOCKER_HOST") != "":
		opts, err = hostOptions(os.Getenv("DOCKER_HOST"))
		return opts, "DOCKER_HOST", err
	case os.Getenv("DOCKER_CONTEXT") != "":
		opts, err = contextOptions(os.Getenv("DOCKER_CONTEXT"))
		return opts, "DOCKER_CONTEXT", err
	}
	if name := currentContext(); name != "" {
		opts, err = contextOptions(name)
		return opts, "currentContext of " + configDir(), err
	}
	return nil, "default", nil
}

// hostOptions reach a host as the docker CLI does, ssh:// included.
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

// defaultContext is a name that the store does not know: it means no context.
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

// configDir is the docker CLI's own folder.
func configDir() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	home, _ := os.UserHomeDir() // without a home there is no configuration
	return filepath.Join(home, ".docker")
}

// currentContext reads the one setting that matters here. A configuration that is absent or broken
// names no context, as in the CLI.
func currentContext() string {
	b, err := os.ReadFile(filepath.Join(configDir(), "config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err != nil || json.Unmarshal(b, &config) != nil || config.CurrentContext == defaultContext {
		return ""
	}
	return config.CurrentContext
}
