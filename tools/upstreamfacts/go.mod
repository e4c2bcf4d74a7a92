module github.com/quorate/quorate/tools/upstreamfacts

go 1.26.0
