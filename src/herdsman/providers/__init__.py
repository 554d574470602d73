"""Where machines come from: each provider keeps the promises of `herdsman.ports.Provider`."""
