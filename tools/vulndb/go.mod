// The advisories that test/harness/advisories looks for. No package is built of it: `go mod tidy` would drop the module.
module github.com/quorate/quorate/tools/vulndb

go 1.26.0

require golang.org/x/vulndb v0.0.0-20261105234957-e22db6528018
