package queue

import (
	"fmt"
	"reflect"

	"github.com/nats-io/nats.go/jetstream"
)

// deviation is a setting that the server has otherwise.
type deviation struct {
	name     string
	is, must any
	fixed    bool // a server cannot change it once the stream is there
}

// String implements fmt.Stringer, for errors.
func (d deviation) String() string { return fmt.Sprintf("%s is %v, must be %v", d.name, d.is, d.must) }

// differences collects deviations.
type differences []deviation

func (d *differences) add(name string, is, must any, fixed bool) {
	if !reflect.DeepEqual(is, must) {
		*d = append(*d, deviation{name: name, is: is, must: must, fixed: fixed})
	}
}

// compareStream names what a stream has otherwise, and gives the configuration
// that corrects what can be corrected. Settings that can neither lose an
// accepted order nor refuse one needlessly stay as the operator made them:
// max_bytes and max_msgs (with "discard new" they only refuse), compression,
// placement, description, and more replicas than were asked for.
func compareStream(have, wanted jetstream.StreamConfig) (differences, jetstream.StreamConfig) {
	var found differences
	for _, s := range []struct {
		name     string
		is, must any
	}{
		{"storage", have.Storage, wanted.Storage},
		{"retention", have.Retention, wanted.Retention},
		{"sealed", have.Sealed, false},
		{"mirror", have.Mirror != nil, false},
		{"persist_mode", have.PersistMode, wanted.PersistMode}, // "async" acknowledges before the disk has it
	} {
		found.add(s.name, s.is, s.must, true)
	}

	next := have
	next.Subjects = wanted.Subjects
	next.Discard, next.DiscardNewPerSubject = wanted.Discard, wanted.DiscardNewPerSubject
	next.MaxAge, next.MaxMsgsPerSubject, next.MaxMsgSize = wanted.MaxAge, wanted.MaxMsgsPerSubject, wanted.MaxMsgSize
	next.Duplicates = wanted.Duplicates
	next.Replicas = max(have.Replicas, wanted.Replicas)
	next.NoAck, next.AllowDirect, next.AllowRollup = false, wanted.AllowDirect, wanted.AllowRollup
	next.Sources, next.SubjectTransform, next.RePublish = nil, nil, nil
	for _, s := range []struct {
		name     string
		is, must any
	}{
		{"subjects", have.Subjects, next.Subjects},
		{"discard", have.Discard, next.Discard},
		{"discard_new_per_subject", have.DiscardNewPerSubject, next.DiscardNewPerSubject},
		{"max_age", have.MaxAge, next.MaxAge},
		{"max_msgs_per_subject", have.MaxMsgsPerSubject, next.MaxMsgsPerSubject},
		{"max_msg_size", have.MaxMsgSize, next.MaxMsgSize},
		{"duplicate_window", have.Duplicates, next.Duplicates},
		{"num_replicas", max(have.Replicas, 1), next.Replicas},
		{"no_ack", have.NoAck, next.NoAck},
		{"allow_direct", have.AllowDirect, next.AllowDirect},
		{"allow_rollup_hdrs", have.AllowRollup, next.AllowRollup},
		{"sources", len(have.Sources) > 0, false},
		{"subject_transform", have.SubjectTransform != nil, false},
		{"republish", have.RePublish != nil, false},
	} {
		found.add(s.name, s.is, s.must, false)
	}
	return found, next
}

// compareWorker names what the consumer has otherwise.
func compareWorker(have, wanted jetstream.ConsumerConfig) differences {
	var found differences
	for _, s := range []struct {
		name     string
		is, must any
	}{
		{"deliver_policy", have.DeliverPolicy, wanted.DeliverPolicy},
		{"ack_policy", have.AckPolicy, wanted.AckPolicy},
		{"ack_wait", have.AckWait, wanted.AckWait},
		{"max_deliver", have.MaxDeliver, wanted.MaxDeliver},
		{"backoff", len(have.BackOff), 0},
		{"filter_subject", have.FilterSubject, ""},
		{"filter_subjects", len(have.FilterSubjects), 0},
		{"replay_policy", have.ReplayPolicy, wanted.ReplayPolicy},
		{"rate_limit_bps", have.RateLimit, wanted.RateLimit},
		{"max_ack_pending", have.MaxAckPending, wanted.MaxAckPending},
		{"headers_only", have.HeadersOnly, false},
		{"max_batch", have.MaxRequestBatch, 0},
		{"max_expires", have.MaxRequestExpires, wanted.MaxRequestExpires},
		{"max_bytes", have.MaxRequestMaxBytes, 0},
		{"inactive_threshold", have.InactiveThreshold, wanted.InactiveThreshold},
		{"num_replicas", have.Replicas, 0}, // as the stream
		{"mem_storage", have.MemoryStorage, false},
		{"pause_until", have.PauseUntil != nil, false},
		{"priority_policy", have.PriorityPolicy, wanted.PriorityPolicy},
		{"deliver_subject", have.DeliverSubject, ""},
	} {
		found.add(s.name, s.is, s.must, false)
	}
	return found
}
