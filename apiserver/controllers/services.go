package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// repairPeriod is the time between two looks at what Services hold.
const repairPeriod = time.Minute

// claimRepair makes the range of service addresses an object and looks, now and then, for addresses and ports that no Service
// holds.
type claimRepair struct {
	base
	blocks    []netip.Prefix // of addresses, by the command line
	orphanAge time.Duration
	// orphans are the rows that no object holds, and since when.
	orphans map[objects.Claimed]time.Time
}

func (c *claimRepair) run(ctx context.Context) error {
	known := false
	for {
		next := repairPeriod
		if !known {
			err := c.ensureServiceCIDR(ctx)
			if known = err == nil; !known {
				next = retryDelay
			}
			if ctx.Err() == nil {
				c.reports.tried("cannot create the ServiceCIDR, retrying", err)
			}
		} else if err := c.repair(ctx); ctx.Err() == nil {
			c.reports.tried("cannot check service addresses and ports, retrying", err)
		}
		if !pause(ctx, next) {
			return context.Cause(ctx)
		}
	}
}

// defaultBlock is the name of the ServiceCIDR that says what the command line says.
const defaultBlock = "kubernetes"

// ensureServiceCIDR creates the ServiceCIDR of the configured blocks if there is none.
func (c *claimRepair) ensureServiceCIDR(ctx context.Context) error {
	res := c.objects.Kinds().Lookup(builtin.BlocksGVR)
	if res == nil {
		return nil
	}
	if v, err := c.objects.Current(res.Table(), defaultBlock); err != nil || v != nil {
		return err
	}
	cidrs := make([]any, len(c.blocks))
	for i, b := range c.blocks {
		cidrs[i] = b.String()
	}
	o := c.objects.System(ctx, res, "", defaultBlock, "create")
	obj := tree.Object{
		"kind": res.Kind, "apiVersion": res.GroupVersion().String(),
		"metadata": tree.Object{"name": defaultBlock}, "spec": tree.Object{"cidrs": cidrs},
	}
	if _, err := o.Create(obj); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ensure the range of service addresses: %w", err)
	}
	return nil
}

// repair removes the addresses and ports that no object has held for some
// time, and makes the rows that are missing. A node that died between the
// entries of a write leaves the former.
func (c *claimRepair) repair(ctx context.Context) error {
	if err := c.objects.Confirm(ctx); err != nil {
		return fmt.Errorf("repair of claims: %w", err)
	}
	var failed []error
	for name, h := range c.objects.Strategies {
		if h.Held == nil {
			continue
		}
		for _, res := range c.objects.Kinds().All() {
			if res.CodeName() == name {
				failed = append(failed, c.repairOf(ctx, res, h))
				break
			}
		}
	}
	return errors.Join(failed...)
}

func (c *claimRepair) repairOf(ctx context.Context, res *kinds.Resource, h *objects.Strategy) error {
	// Rows first: an object that is written meanwhile has made its rows before.
	rows, err := c.claimRows()
	if err != nil {
		return err
	}
	versions, err := c.objects.Range(res.Table(), "")
	if err != nil {
		return err
	}
	made, held := map[objects.ClaimKey]bool{}, map[objects.ClaimKey]bool{}
	for _, row := range rows {
		made[row.ClaimKey] = true
	}
	var failed []error
	for _, v := range versions {
		obj, err := codec.DecodeStored(res, v)
		if err != nil {
			return err
		}
		for _, k := range h.Held(obj) {
			held[k] = true
			if !made[k] {
				failed = append(failed, c.reclaim(ctx, res, obj, k))
			}
		}
	}
	orphans := map[objects.Claimed]time.Time{}
	for _, row := range rows {
		if held[row.ClaimKey] {
			continue
		}
		since, known := c.orphans[row]
		if !known {
			since = time.Now()
		}
		if time.Since(since) < c.orphanAge {
			orphans[row] = since
			continue
		}
		c.objects.Log.Info("released an orphaned service address or port", "claim", row.Table+"/"+row.Key)
		c.objects.System(ctx, res, "", "", "delete").Unclaim(row.ClaimKey, row.Revision)
	}
	c.orphans = orphans
	return errors.Join(failed...)
}

// claimRows are all rows that writes have made.
func (c *claimRepair) claimRows() ([]objects.Claimed, error) {
	var rows []objects.Claimed
	for _, table := range [...]string{builtin.AddressesTable, builtin.NodePortsTable} {
		page, _, err := c.objects.Scan(table, consistency.Plan{Mode: consistency.Any}, 0, mvcc.Query{})
		if err != nil {
			return nil, err
		}
		for _, v := range page.Versions {
			if by, _ := v.Labels.Lookup(builtin.ManagedByLabel); table == builtin.AddressesTable && by != builtin.ManagedByUs {
				continue // somebody else's IPAddress
			}
			rows = append(rows, objects.Claimed{ClaimKey: objects.ClaimKey{Table: table, Key: v.Key}, Revision: v.Revision})
		}
	}
	return rows, nil
}

// reclaim makes a row that an object holds without it.
func (c *claimRepair) reclaim(ctx context.Context, res *kinds.Resource, obj tree.Object, k objects.ClaimKey) error {
	meta := tree.As(obj["metadata"])
	o := c.objects.System(ctx, res, tree.Text(meta, "namespace"), tree.Text(meta, "name"), "update")
	err := builtin.ClaimAgain(o, k)
	if errors.Is(err, objects.ErrTaken) {
		return nil // made meanwhile, or by somebody who needs no row of ours
	}
	return err
}
