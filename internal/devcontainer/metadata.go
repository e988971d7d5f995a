package devcontainer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
)

// metadataProperties of a configuration file count as an entry of metadata.
var metadataProperties = []string{
	"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand", "waitFor", "customizations",
	"mounts", "containerEnv", "containerUser", "init", "privileged", "capAdd", "securityOpt", "remoteUser", "userEnvProbe", "remoteEnv",
	"overrideCommand", "portsAttributes", "otherPortsAttributes", "forwardPorts", "shutdownAction", "updateRemoteUserUID", "hostRequirements",
}

// updatableProperties are read again from today's file for a container that already carries the configuration in its label.
var updatableProperties = []string{"remoteUser", "userEnvProbe", "remoteEnv"}

// parseMetadata reads the metadata label: an array of entries, or one entry. A label that is neither is taken for an empty one, as
// the reference does, and the error says so.
func parseMetadata(label string) ([]entry, error) {
	if len(label) > jsonc.MaxBytes {
		return nil, fmt.Errorf("it is larger than %d bytes", jsonc.MaxBytes)
	}
	var value any
	if err := json.Unmarshal([]byte(label), &value); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case entry:
		return []entry{value}, nil
	case []any:
		entries := make([]entry, 0, len(value))
		for _, v := range value {
			if e, ok := v.(entry); ok {
				entries = append(entries, e)
			}
		}
		return entries, nil
	}
	return nil, fmt.Errorf("it holds neither an array nor an object")
}

// metadataEntries gives the entries that make up the configuration of a container, lowest first: those of its label, then what counts of the
// configuration file.
func metadataEntries(label []entry, config entry, hasLabel, hasIDLabels bool) []entry {
	properties := metadataProperties
	if hasLabel && hasIDLabels {
		properties = updatableProperties
	}
	picked := entry{}
	for _, name := range properties {
		if value, ok := config[name]; ok {
			picked[name] = value
		}
	}
	var all []entry
	for _, e := range slices.Concat(label, []entry{picked}) {
		if len(e) > 0 {
			all = append(all, e)
		}
	}
	return all
}
