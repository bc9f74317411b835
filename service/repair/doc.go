// Package repair is what puts right, changes or ends what lies behind the orders. In the order mode async it loads the hot
// copies (Rebuilder), finishes what dead processes have left (Reconciler, which one elected instance runs), compares both
// sides order by order (Auditor), brings administrators' changes to the hot copies (Stock), replays dead letters (Replayer)
// and changes the order mode (ModeChange). In both modes it expires unpaid orders and publishes events.
//
// internal/app runs it, and the commands of an operator use its parts. It settles through the package persist.
//
// Read reconcile.go first, which calls outbox.go, stranded.go and drift.go; then rebuild.go with rebuild_job.go.
package repair
