// Names redsync and what it needs, so that Go brings it; the sums are made where it is built.
module leasehold/interop/redsync

go 1.26

require (
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/redis/go-redis/v9 v9.23.0
	golang.org/x/sys v0.48.0
)
