// Package quoratev1 has the Go types of the API group quorate.io/v1: what Quorate shows of itself
// as objects of Kubernetes. Their schemas are in package schema, data/own.
package quoratev1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is that of Members.
var Resource = schema.GroupVersionResource{Group: "quorate.io", Version: "v1", Resource: "members"}

// Finalizer holds a Member that is being deleted until it is out of the cluster. Who takes it off
// takes the deletion back: the leader makes another object for the member.
const Finalizer = "quorate.io/member"

// Member is a node of the cluster, as the leader sees it. The leader makes and deletes the objects;
// who deletes one declares the member gone, and the leader removes it from the cluster.
type Member struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            MemberStatus `json:"status,omitzero"`
}

// MemberStatus is what the leader knows of a member. It is written only when it changes, so
// nothing that always changes is in it.
type MemberStatus struct {
	ID          string `json:"id,omitempty"`
	Name        string `json:"name,omitempty"`
	Role        Role   `json:"role,omitempty"`
	PeerAddress string `json:"peerAddress,omitempty"`
	APIAddress  string `json:"apiAddress,omitempty"`
	// Version and FeatureVersion are of its release, as it said when it last answered.
	Version        string             `json:"version,omitempty"`
	FeatureVersion int64              `json:"featureVersion,omitempty"`
	Conditions     []metav1.Condition `json:"conditions,omitempty"`
}

// Role of a member.
type Role string

// The roles.
const (
	Leader   Role = "leader"
	Voter    Role = "voter"
	Nonvoter Role = "nonvoter"
)

// Types of conditions.
const (
	// Ready: the member answers, follows the leader, and is not far behind.
	Ready = "Ready"
	// VoterCondition: the member has a vote.
	VoterCondition = "Voter"
	// DiskSpaceLow: its disk has no room for what makes objects larger, or nothing but what the node has reserved.
	DiskSpaceLow = "DiskSpaceLow"
	// LostEntries: it came back without entries that it had acknowledged, and must be replaced.
	LostEntries = "LostEntries"
	// WrongState: it has stopped because its state was wrong, and must be replaced.
	WrongState = "WrongState"
	// RemovalBlocked: the object is being deleted, and to remove the member now would endanger the cluster.
	RemovalBlocked = "RemovalBlocked"
)
