package repair

import (
	"context"
	"fmt"
	"strings"

	"seckill/model"
)

// ModeChange changes the order mode of a database that nobody sells from.
type ModeChange struct {
	Deps Deps

	// Alive lists the instances that have given a sign of life lately.
	Alive func(ctx context.Context) ([]model.Instance, error)
	// Commit makes a mode that of the database, and begins another epoch of each open hot copy. It may be repeated.
	Commit func(ctx context.Context, to model.OrderMode) error
}

// Do changes the mode. CONFLICT names everything that stands against it: instances that sell, or would as soon as they
// can, and orders that were accepted and have no row yet. What cannot be asked is an error: then nothing is changed.
func (c *ModeChange) Do(ctx context.Context, to model.OrderMode) error {
	record, err := c.Deps.Mode(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	against, err := c.selling(ctx, record.Mode)
	if err != nil {
		return err
	}
	var epochs []model.EpochRecord
	if record.Mode == model.ModeAsync {
		if epochs, err = c.Deps.Epochs.Kept(ctx); err != nil {
			return fmt.Errorf("read the vouchers: %w", err)
		}
		waiting, err := c.waiting(ctx, epochs)
		if err != nil {
			return err
		}
		against = append(against, waiting...)
	}
	if len(against) > 0 {
		return model.Conflict("The order mode stays " + string(record.Mode) + ". " + strings.Join(against, " "))
	}
	// Redis first: if the rest fails, the instances find a closed copy and rebuild it.
	for _, epoch := range epochs {
		if !epoch.Open() {
			continue
		}
		epoch.Epoch++
		if err := c.Deps.Hot.Close(ctx, epoch); err != nil {
			return fmt.Errorf("close the hot copy of voucher %s: %w", epoch.VoucherID, err)
		}
	}
	return c.Commit(ctx, to)
}

// selling names the instances of the mode that the database has. Those of the other one sell nothing, and may wait for
// this.
func (c *ModeChange) selling(ctx context.Context, mode model.OrderMode) ([]string, error) {
	alive, err := c.Alive(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask which instances sell: %w", err)
	}
	var names []string
	for _, instance := range alive {
		if instance.Mode == mode {
			names = append(names, instance.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("Instances sell: %s. Stop them first; one that was killed counts for some seconds.", strings.Join(names, ", "))}, nil
}

// waiting says how many orders were accepted and have no row yet: in messages, and in reservations that are in no
// message.
func (c *ModeChange) waiting(ctx context.Context, epochs []model.EpochRecord) ([]string, error) {
	backlog, err := c.Deps.Queue.Backlog(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the queue: %w", err)
	}
	open := map[string]bool{} // some come twice
	for _, epoch := range epochs {
		if epoch.OpenEpoch == 0 {
			continue
		}
		var reserved []model.Reservation
		err := c.Deps.Hot.Pendings(ctx, epoch.VoucherID, epoch.OpenEpoch, func(r model.Reservation) error {
			reserved = append(reserved, r)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the reservations of voucher %s: %w", epoch.VoucherID, err)
		}
		_, left, err := c.Deps.splitByRow(ctx, reserved)
		if err != nil {
			return nil, err
		}
		for _, r := range left {
			open[r.ID] = true
		}
	}
	if backlog.Messages == 0 && len(open) == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("Orders wait: %d messages, and %d reservations without a row. Let a worker finish them, and stop it.",
		backlog.Messages, len(open))}, nil
}
