"""A reward server: any reward over HTTP, for trainers in other processes, machines and languages."""
