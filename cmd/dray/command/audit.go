package command

import "github.com/spf13/cobra"

func newAudit(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read the trail of calls"}
	cmd.AddCommand(newAuditList(a), newAuditShow(a), newAuditFiles(a))
	return group(cmd)
}
