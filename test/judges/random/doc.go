// Package random is for judges that hold this project to Kubernetes' own code: random objects of upstream's types, what
// upstream makes of them when it reads and stores them, and where two objects differ. No program imports it.
package random
