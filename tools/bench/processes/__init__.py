"""What the bench runs in processes of its own: servers, clients, and stores that are opened anew."""
