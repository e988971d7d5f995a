package api

import (
	"context"
	"net/http"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
)

// Daemon is the process that a server is part of.
type Daemon interface {
	// Status returns the state of the daemon. A part that does not respond delays it by a few seconds
	// at most, and has an error.
	Status(ctx context.Context) Status
	// Reload reads the configuration again for a principal and applies it. It fails with denied for
	// another user than the daemon's own and root, with invalid_request for an invalid configuration,
	// and with conflict for one that needs a restart. Then nothing has changed.
	Reload(ctx context.Context, principal string) (Reload, error)
	// Prune removes expired records of the audit log, or counts them. Without a time it takes that of
	// audit.keep, and fails with invalid_request if there is none.
	Prune(ctx context.Context, opts audit.PruneOptions) (audit.PruneReport, error)
}

// Reload is a configuration that was read again.
type Reload struct {
	Config  ConfigStatus `json:"config"`
	Changed []string     `json:"changed" doc:"The keys that have changed."`
}

// reload reads the daemon's configuration again.
func (h *info) reload(w http.ResponseWriter, r *http.Request) error {
	done, err := h.server.cfg.Daemon.Reload(r.Context(), principal(r))
	if err != nil {
		return err
	}
	return reply(w, done)
}

// Status is the state of the daemon.
type Status struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	State     string    `json:"state" doc:"The state directory."`
	Socket    string    `json:"socket"`
	// Draining means that new calls are refused.
	Draining   bool            `json:"draining" doc:"Whether the daemon is shutting down."`
	Config     ConfigStatus    `json:"config"`
	Calls      CallsStatus     `json:"calls"`
	Audit      AuditStatus     `json:"audit"`
	Engine     EngineStatus    `json:"engine"`
	Workspaces WorkspaceStatus `json:"workspaces"`
}

// ConfigStatus is the configuration that the daemon has.
type ConfigStatus struct {
	File     string    `json:"file" doc:"The configuration file; empty if there is none."`
	Digest   string    `json:"digest" doc:"The digest of all values, as in the header Dray-Config."`
	LoadedAt time.Time `json:"loaded_at"`
}

// CallsStatus counts the calls of all callers.
type CallsStatus struct {
	Running int `json:"running"`
	Queued  int `json:"queued"`
}

// AuditStatus is the state of the audit log.
type AuditStatus struct {
	Path  string      `json:"path"`
	Error *dray.Error `json:"error,omitzero" doc:"Why calls cannot be recorded."`
	// Warnings say what threatens the log while calls still run.
	Warnings []*dray.Error `json:"warnings,omitempty" doc:"What will prevent records soon, such as a disk that is nearly full."`
}

// EngineStatus is the state of the container engine.
type EngineStatus struct {
	Host   string      `json:"host" doc:"Its address."`
	Source string      `json:"source" doc:"What selected it."`
	Error  *dray.Error `json:"error,omitzero" doc:"Why its containers cannot be listed."`
}

// WorkspaceStatus counts the known workspaces. Both numbers are 0 if the engine has an error.
type WorkspaceStatus struct {
	Known   int `json:"known"`
	Running int `json:"running" doc:"Those with a running container."`
}

// status responds with the state of the daemon.
func (h *info) status(w http.ResponseWriter, r *http.Request) error {
	return reply(w, h.server.cfg.Daemon.Status(r.Context()))
}
