// Package failpoint names each step of an order's road at which a process may die: tests kill the real program there.
//
// In the shipped program Reach does nothing and the compiler removes it. Built with the tag `failpoint`, the process
// kills itself with SIGKILL the first time it reaches the step that SECKILL_FAILPOINT names.
package failpoint

// Step is one boundary of the road.
type Step string

// The steps, in the order in which an order passes them.
const (
	BeforeReserve Step = "before-reserve"
	AfterReserve  Step = "after-reserve"
	BeforePublish Step = "before-publish"
	AfterPublish  Step = "after-publish" // the queue has acknowledged
	BeforeAnswer  Step = "before-answer" // the epoch was read once more
	BeforePersist Step = "before-persist"
	BeforeInsert  Step = "before-insert"
	AfterInsert   Step = "after-insert"
	BeforeCommit  Step = "before-commit"
	AfterCommit   Step = "after-commit"
	BeforeSettle  Step = "before-settle"
	AfterSettle   Step = "after-settle"
	BeforeAck     Step = "before-ack"
	AfterAck      Step = "after-ack"

	// An order that cannot be persisted now.
	BeforeMove Step = "before-move"
	AfterMove  Step = "after-move" // it waits in a message of its own, and in the one in which it came

	// An order that cannot be persisted.
	BeforeDeadLetter Step = "before-dead-letter"
	AfterDeadLetter  Step = "after-dead-letter"

	// A unit that its user gives back.
	BeforeCancel     Step = "before-cancel"
	AfterCancel      Step = "after-cancel" // the database knows
	AfterReturn      Step = "after-return" // the hot copy knows
	AfterReturnNoted Step = "after-return-noted"

	// A unit of an order that was not paid in time.
	BeforeExpire Step = "before-expire"
	AfterExpire  Step = "after-expire"

	// A unit, returned or added, of a voucher on whose waitlist a user has a place.
	// The unit is an order of the user who waited, in a transaction that is not committed.
	AfterHandOver Step = "after-hand-over"

	// A draw, and an entry in one.
	BeforeEntryCommit Step = "before-entry-commit"
	AfterEntry        Step = "after-entry" // the database has it
	AfterDrawClosed   Step = "after-draw-closed"
	AfterDrawRoot     Step = "after-draw-root"    // it is published
	BeforeDrawCommit  Step = "before-draw-commit" // of the orders and places of some of the drawn order
	AfterDrawBatch    Step = "after-draw-batch"   // they are served

	// A unit that comes back by its outbox row.
	BeforeRelease     Step = "before-release"
	AfterRelease      Step = "after-release"
	AfterReleaseNoted Step = "after-release-noted" // its outbox row is gone

	// What other systems are told.
	AfterEventsPublished Step = "after-events-published" // the stream has them

	// Money.
	BeforePaymentStart  Step = "before-payment-start" // the database knows of the payment
	AfterPaymentStart   Step = "after-payment-start"  // the provider knows
	BeforePaymentSettle Step = "before-payment-settle"
	AfterPaymentSettle  Step = "after-payment-settle"
	BeforeRefund        Step = "before-refund" // the database knows of the refund
	AfterRefund         Step = "after-refund"  // the provider has given the money back
	AfterRefundNoted    Step = "after-refund-noted"

	// What a dead process left behind.
	BeforeRepublish Step = "before-republish"
	AfterRepublish  Step = "after-republish"

	// The rebuild of a hot copy.
	AfterCloseDatabase Step = "after-close-database"
	AfterCloseCopy     Step = "after-close-copy"
	AfterBarrier       Step = "after-barrier"
	AfterLoad          Step = "after-load"
	AfterOpenDatabase  Step = "after-open-database"
	AfterOpenCopy      Step = "after-open-copy"

	// Another stock.
	AfterIntent      Step = "after-intent"
	AfterLowerCopy   Step = "after-lower-copy"
	AfterStockChange Step = "after-stock-change" // the database knows
)
