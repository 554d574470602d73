"""Replays arrivals and run times in virtual time through the real control loop: what would a policy have cost?"""
