package delivery

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/raftstore/watch"
)

// cause is what an event that is not delivered waits for.
type cause int

const (
	// hub: that watches are told that there is something to read.
	hub cause = iota
	// server: that the watch's goroutine reads, encodes and hands over what it was told of.
	server
	// conversion: for a webhook, without whose answer the event cannot be shown.
	conversion
	// client: that the connection takes it. No stall: nothing but that client waits for it.
	client
	// check: for the canary itself, which is late.
	check
	causes
)

var causeNames = [causes]string{"hub", "server", "conversion", "client", "check"}

// found is what the canary has found. The goroutine of Run writes it.
type found struct {
	checked atomic.Int64 // a Moment
	ages    [causes]atomic.Int64
	stalls  [causes]atomic.Uint64
	stalled [causes]bool
}

func (f *found) collect(ch chan<- prometheus.Metric, period time.Duration) {
	checked := watch.Moment(f.checked.Load())
	if checked == 0 {
		return // nobody looks
	}
	for c, name := range causeNames {
		age := time.Duration(f.ages[c].Load())
		if late := watch.Now().Sub(checked) - period; cause(c) == check && late > period {
			age = late // it is not there to say so
		}
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age.Seconds(), name)
		if cause(c) != client {
			ch <- prometheus.MustNewConstMetric(stallsDesc, prometheus.CounterValue, float64(f.stalls[c].Load()), name)
		}
	}
}

// Run is the canary. It looks, once per period until done, at what waits to be delivered:
// at the hub, and at each watch. Then it calls after. It needs no event of its own, and an
// idle node does not do more than look.
func (d *Delivery) Run(done <-chan struct{}, watches iter.Seq[*Watch], after func()) {
	d.found.checked.Store(int64(watch.Now()))
	defer d.found.checked.Store(0) // nobody looks any more: there is nothing to say
	tick := time.NewTicker(d.cfg.Period)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			d.check(watches)
			after()
		}
	}
}

func (d *Delivery) check(watches iter.Seq[*Watch]) {
	now := watch.Now() // before the look: nothing is older than it was
	var ages [causes]time.Duration
	var waiting [causes]int // watches
	note := func(c cause, since watch.Moment) {
		waiting[c]++
		ages[c] = max(ages[c], now.Sub(since))
	}
	if d.cfg.Behind != nil {
		if since, behind := d.cfg.Behind(); behind {
			ages[hub] = max(0, now.Sub(since))
		}
	}
	last := watch.Moment(d.found.checked.Load())
	ages[check] = max(0, now.Sub(last)-2*d.cfg.Period)
	for w := range watches {
		if c, since, waits := w.waits(); waits {
			note(c, since)
		}
	}
	d.found.checked.Store(int64(now))
	for c := range causes {
		d.found.ages[c].Store(int64(ages[c]))
		d.judge(c, ages[c], waiting[c])
	}
}

// waits says whether a watch has something that it has not delivered, what that waits for,
// and since when.
func (w *Watch) waits() (c cause, since watch.Moment, waits bool) {
	cursor := w.cursor.Load()
	if cursor == nil {
		return 0, 0, false
	}
	if holds := w.holds.Load(); holds != 0 {
		return [...]cause{ofServer: server, ofConversion: conversion, ofClient: client}[holds&turnMask], watch.Moment(holds >> turnBits), true
	}
	// What it was told of and has not begun to read. Until it was free it was the client's, or
	// is counted otherwise: freed is asked last, so that it is not of before holds was.
	since, waits = cursor.Waiting()
	return server, max(since, watch.Moment(w.freed.Load())), waits
}

// judge says when a stall begins and when it has ended.
func (d *Delivery) judge(c cause, age time.Duration, watches int) {
	if c == client {
		return
	}
	stalled := age >= d.cfg.Stall
	was := d.found.stalled[c]
	d.found.stalled[c] = stalled
	switch {
	case stalled:
		if !was {
			d.found.stalls[c].Add(1)
		}
		args := []any{"waits_for", causeNames[c], "for", age}
		if watches > 0 {
			args = append(args, "watches", watches)
		}
		d.limit.Error(d.cfg.Log, causeNames[c], "watch events are not delivered: they wait for this node, not for clients", args...)
	case was:
		d.cfg.Log.Info("watch events are delivered again", "waited_for", causeNames[c])
	}
}
