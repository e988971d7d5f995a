package command

import "github.com/spf13/cobra"

func newAudit(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Query, verify, copy and prune the audit log"}
	addGroup(cmd, "Query Commands:", newAuditList(a), newAuditShow(a), newAuditTail(a),
		newAuditStats(a), newAuditExport(a), newAuditFiles(a), newAuditEvents(a))
	addGroup(cmd, "Proof Commands:", newAuditVerify(a), newAuditCheckpoint(a), newAuditReceipt(a))
	addGroup(cmd, "Storage Commands:", newAuditBackup(a), newAuditPrune(a))
	return group(cmd)
}

// addGroup adds commands that the help of cmd lists together below a title.
func addGroup(cmd *cobra.Command, title string, commands ...*cobra.Command) {
	cmd.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, sub := range commands {
		sub.GroupID = title
		cmd.AddCommand(sub)
	}
}
